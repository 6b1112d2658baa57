"""The words by which parameters are told apart: general English of interfaces, nothing about particular tools.

All words are in lower case and singular. The tables are our own choice; the paper clusters parameters by embeddings
of their descriptions and gives no word lists.
"""

from __future__ import annotations

from typing import Final


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


ALIASES: Final = _pairs(
    "q:query keyword:query search:query term:query lat:latitude lng:longitude lon:longitude long:longitude "
    "tel:phone telephone:phone mobile:phone zip:zipcode postcode:zipcode postal:zipcode lang:language qty:quantity "
    "link:url uri:url href:url img:image photo:image picture:image pic:image num:number no:number nr:number "
    "desc:description addr:address dest:destination dst:destination src:source msg:message pwd:password "
    "cat:category ticker:symbol uuid:id guid:id identifier:id ids:id dob:birthdate birthday:birthdate "
    "mail:email title:name dept:department org:organization organisation:organization acct:account "
    "repo:repository dir:directory folder:directory pos:position temp:temperature max:maximum min:minimum "
    "info:information txt:text ts:timestamp datetime:time fname:firstname lname:lastname surname:lastname "
    "forename:firstname ccy:currency geoid:geo"
)
"""Spellings of one word. ``title`` is what a name is called where things have titles."""

COMPOUNDS: Final = {
    ("zip", "code"): "zipcode",
    ("postal", "code"): "zipcode",
    ("post", "code"): "zipcode",
    ("user", "name"): "username",
    ("file", "name"): "filename",
    ("host", "name"): "hostname",
    ("domain", "name"): "domain",
    ("first", "name"): "firstname",
    ("last", "name"): "lastname",
    ("family", "name"): "lastname",
    ("given", "name"): "firstname",
    ("full", "name"): "fullname",
    ("phone", "number"): "phone",
    ("mobile", "number"): "phone",
    ("email", "address"): "email",
    ("e", "mail"): "email",
    ("time", "zone"): "timezone",
    ("time", "stamp"): "timestamp",
    ("date", "time"): "time",
    ("birth", "date"): "birthdate",
    ("ip", "address"): "ip",
    ("web", "site"): "website",
    ("home", "page"): "homepage",
    ("access", "token"): "accesstoken",
    ("api", "key"): "apikey",
}
"""Two words that are one."""

FROM: Final = word_set(
    "from origin source start begin departure depart pickup outbound minimum base since after old previous"
)
TO: Final = word_set("to destination target end finish arrival dropoff inbound return maximum until before new upper")
TAIL_ROLES: Final = word_set("from to start end minimum maximum since until")
"""Roles that may stand behind their noun as well (``date_from``); the others are nouns there (``data_source``)."""

NOISE: Final = word_set(
    "the a an of input param parameter arg argument field string str int integer value my your its raw this "
    "given specific current selected or and in by "
    "nearest closest default latest recent primary main matching"
)
"""Words that say nothing about what a value is, as long as others are left."""

GENERIC: Final = word_set(
    "id name code type status value key number text data result description date time url image count total message "
    "content slug label information detail list response output input success error version query format "
    "size length page limit offset sort level rank score rating position index flag kind tag comment note body "
    "subject amount price year month day hour minute second summary field row meta metadata "
    "attribute property unit percent percentage path timestamp cursor token"
)
"""Words that say what sort of value it is, not of what: ``id`` alone means nothing before we know whose."""

WRAPPERS: Final = word_set(
    "data result response list body payload output object content hit edge meta metadata information detail embedded "
    "attribute property page"
)
"""Levels of an output that hold things without naming them."""
MEMBERS: Final = word_set("item record entry row value node element")
"""Levels that do so in what a search or a list gives; elsewhere they are things of their own: the items of an order."""

STRICT_VERBS: Final = word_set(
    "get create search find update delete add remove fetch read send put patch set calculate compute convert "
    "generate make retrieve lookup look buy cancel translate analyze analyse encrypt decrypt insert upsert edit modify "
    "change select submit upload download install enable disable start stop close open turn write append resolve "
    "verify validate authenticate login logout subscribe unsubscribe follow unfollow count compare predict estimate "
    "detect extract parse execute run query is"
)
VERBS: Final = STRICT_VERBS | word_set(
    "post list book order schedule play show check view report reserve exchange return purchase copy move share "
    "record plan track rate review like display describe transfer invite message mention comment assign place sort"
)
"""Words that begin the name of a tool; those beyond the strict ones may be its noun as well."""

READING: Final = word_set(
    "get search find fetch read lookup look retrieve list show view check describe query display detect compare "
    "extract calculate compute count predict estimate resolve"
)
"""Verbs of tools that leave the world as it is."""
FILTERING: Final = word_set("search find list query count lookup")
"""Verbs of tools whose optional ids are filters."""
PREPOSITIONS: Final = word_set("by for with from in of to on at via using per as and")

ADJECTIVES: Final = word_set(
    "unique numeric valid full new string specific internal external digit character integer alphanumeric short long "
    "optional required given current certain particular single first last exact actual primary main available "
    "pending all latest recent top best random popular real public private detailed next previous"
)
"""Words that stand before a noun in a description or a name without being one."""

IDENTIFIERS: Final = word_set(
    "id token cursor hash sha handle slug key reference ref geo fingerprint accesstoken pointer"
)
"""Values that only a system knows: they come out of another call."""
SECRETS: Final = word_set("apikey password secret credential pin passphrase otp cvv")
FREE_TEXT: Final = word_set(
    "query text message content description comment subject body note prompt reason question summary sentence caption "
    "instruction feedback expression keyword review"
)
PERSONAL: Final = word_set("firstname lastname fullname birthdate phone age gender")
QUANTITIES: Final = word_set(
    "date time year month day hour minute limit offset page size count quantity number amount price length width "
    "height maximum minimum sort format language locale unit radius percent percentage period timezone budget weight "
    "rating level style theme color mode range"
)
"""Wishes and measures that a user states."""
