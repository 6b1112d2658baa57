"""The words of interfaces: verbs of tools, noise words, and words for the sort of a value.

General English of interfaces, in lower case and singular. All of this is our own choice [O]; the NaviAgent paper
clusters parameters by embeddings of their descriptions and gives no word lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from langgraph_toolmem.text.words import word_set


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words by their meaning in the name of a tool or a parameter.

    Attributes:
        aliases: other spelling -> spelling. ``title`` is a name of things with titles.
        from_side, to_side: the side of a value if there are two of a kind: ``origin_city``, ``destination_city``.
        noise: words without meaning for the owner of a value or the subject of a tool, as long as others are left.
        generic: words for the sort of a value, not its owner: ``id`` needs an owner.
        reading: verbs of tools that do not change the world.
        changing: verbs of tools that change it.
        verbs: words that begin the name of a tool.
        strict_verbs: verbs that are not nouns as well.
        acts: words that begin a user's order.
        prepositions: words that end the subject of a tool.
        identifiers: values that only a system knows: they come from another call.
        secrets: values that are never kept.
        free_text: values in the user's or the model's own words.
        people: roles of people in a record: without another producer, users have the id.
        caller: parts of a path that mean the caller, in place of an id.
        personal: values that describe a person.
        path_verbs: words that begin or end the path of a route and are not its subject.
        no_entities: words that are not the subject of a tool.
        small_talk: words of messages without a request.
        not_owners: words that are not names, even with a possessive 's.
        no_names: words with a capital that are not names.
    """

    aliases: Mapping[str, str]
    from_side: frozenset[str]
    to_side: frozenset[str]
    noise: frozenset[str]
    generic: frozenset[str]
    reading: frozenset[str]
    changing: frozenset[str]
    verbs: frozenset[str]
    strict_verbs: frozenset[str]
    acts: frozenset[str]
    prepositions: frozenset[str]
    identifiers: frozenset[str]
    secrets: frozenset[str]
    free_text: frozenset[str]
    people: frozenset[str]
    caller: frozenset[str]
    personal: frozenset[str]
    path_verbs: frozenset[str]
    no_entities: frozenset[str]
    small_talk: frozenset[str]
    not_owners: frozenset[str]
    no_names: frozenset[str]


def _lexicon() -> Lexicon:
    spellings = (
        "q:query keyword:query search:query term:query lat:latitude lng:longitude lon:longitude long:longitude "
        "tel:phone telephone:phone mobile:phone zip:zipcode postcode:zipcode postal:zipcode lang:language qty:quantity "
        "link:url uri:url href:url img:image photo:image picture:image pic:image num:number no:number nr:number "
        "desc:description addr:address dest:destination dst:destination src:source msg:message pwd:password "
        "cat:category ticker:symbol uuid:id guid:id identifier:id ids:id dob:birthdate birthday:birthdate mail:email "
        "title:name dept:department org:organization organisation:organization acct:account repo:repository "
        "dir:directory folder:directory pos:position temp:temperature max:maximum min:minimum info:information "
        "txt:text ts:timestamp datetime:time fname:firstname lname:lastname surname:lastname forename:firstname "
        "ccy:currency geoid:geo"
    )
    reading = word_set(
        "get fetch read retrieve list search find lookup look query view show display describe count check browse "
        "inspect preview calculate compute estimate predict compare summarize explain detect extract is has exists "
        "grep"
    )
    changing = word_set(
        "create add insert append delete remove erase wipe purge destroy modify edit rename replace overwrite cancel "
        "assign enable disable activate deactivate suspend register subscribe install uninstall publish approve reject "
        "deny revoke submit send deliver notify pay buy sell withdraw redeem acknowledge accept decline dismiss attach "
        "detach increment decrement consume allocate provision deploy restore revert undo terminate kill restart "
        "reboot mute promote hide synchronize migrate initialize configure write apply extend renew expire discard "
        "convert reschedule postpone toggle upsert put fix escalate execute reserve deduct reimburse capture retry "
        "make charge refund claim ensure trigger run start stop set reset update change save lock mark book order ship "
        "sign post archive move copy schedule launch release transfer deposit purchase upload import export invite "
        "drop clear empty flush upvote vote process pop next"
    )
    verbs = (
        reading
        | changing
        | word_set(
            "resolve patch generate translate analyze analyse encrypt decrypt select download close open turn verify "
            "validate authenticate login logout unsubscribe follow unfollow parse play report exchange return share "
            "record plan track rate review like message mention comment place sort"
        )
    )
    also_nouns = word_set(
        "post list book order schedule play show check view report reserve exchange return purchase copy move share "
        "record plan track rate review like display describe transfer invite message mention comment assign place sort "
        "preview estimate trigger charge claim process vote lock mark ship sign archive launch release deposit import "
        "export drop flush pop next empty clear hide fix set retry capture grep has exists browse inspect"
    )
    # "Order" and "list" begin the name of a tool as verbs, and end it as nouns.
    strict_verbs = verbs - also_nouns
    noise = word_set(
        "the a an of input param parameter arg argument field string str int integer value my your its our his her "
        "their any some one each that this which or and in by raw given specific certain particular single current "
        "selected nearest closest default latest recent primary main matching unique numeric valid full new "
        "internal digit character alphanumeric short long optional required first last exact actual available "
        "pending all top best random popular real public private detailed next previous newly created"
    )
    generic = word_set(
        "id name code type status value key number text data result description date time url image count total "
        "message content slug label information detail list response output input success error version query "
        "format size length page limit offset sort level rank score rating position index flag kind tag comment "
        "note body subject amount price year month day hour minute second summary field row meta metadata "
        "attribute property unit percent percentage path timestamp cursor token"
    )
    aliases: dict[str, str] = {}
    for pair in spellings.split():
        spelling, _, usual = pair.partition(":")
        aliases[spelling] = usual
    return Lexicon(
        aliases=aliases,
        from_side=word_set(
            "from origin source start begin departure depart pickup outbound minimum base since after old previous"
        ),
        to_side=word_set(
            "to destination target end finish arrival dropoff inbound return maximum until before new upper"
        ),
        noise=noise,
        generic=generic,
        reading=reading,
        changing=changing,
        verbs=verbs,
        strict_verbs=strict_verbs,
        acts=verbs | word_set("mail email tell ask give use go write call pay ensure tag remind make reply forward"),
        prepositions=word_set("by for with from in of to on at via using per as and"),
        identifiers=word_set(
            "id token cursor hash sha handle slug key reference ref geo fingerprint accesstoken pointer"
        ),
        secrets=word_set("apikey password secret credential pin passphrase otp cvv"),
        free_text=word_set(
            "query text message content description comment subject body note prompt reason question summary sentence "
            "caption instruction feedback expression keyword review"
        ),
        people=word_set(
            "requester assignee owner author creator member approver reviewer sender recipient actor manager "
            "participant invitee attendee collaborator responder reporter submitter operator subscriber assigner "
            "editor"
        ),
        caller=word_set("me self myself whoami current"),
        personal=word_set("firstname lastname fullname birthdate phone age gender"),
        path_verbs=strict_verbs | {"bulk"},
        no_entities=noise | strict_verbs | generic,
        small_talk=word_set(
            "again ahead all alright amazing appreciate back bit bye cheers continue correct done else enough evening "
            "everything exactly excellent fine go good goodbye great guys happy hello help helpful hey hi just know "
            "like lot mind moment more morning much never no nope nothing ok okay one perfect please problem proceed "
            "ready right same see so sorry sounds still sure talk thank thanks that thing think today too understand "
            "understood very wait welcome well wonderful worries worry wow yeah yep yes you"
        ),
        not_owners=word_set(
            "it that what there here let who how where when she everyone everybody someone somebody one today tomorrow "
            "yesterday week month year day company team user customer system world"
        ),
        no_names=word_set(
            "i i'm i'd i've i'll also otherwise additionally furthermore moreover afterwards subsequently finally next "
            "then once after before if when while since please thanks thank hello hi hey dear ok okay yes no not you "
            "your we our it it's its he she they this that these those there here what who how which where why can "
            "could would should the an and or but for to from in on at with by as my me let let's do does did is are "
            "was were be been"
        ),
    )


LEXICON: Final = _lexicon()
