"""The words of a text: the common splitter of all rankers; texts compared by their words; and the words of interfaces.

Identifiers are split too: ``getUserName``, ``get_user_name`` and ``get.user-name`` are the same words. If values have
to be found again letter by letter, as in templates, `text.values.read_text` keeps them whole and in their places.

The *features* of a text are its stems and pairs of neighbouring stems. `similarity` compares two texts by them,
`LexicalIndex` ranks a few thousand short texts by Okapi BM25 over them (S. Robertson, H. Zaragoza, "The Probabilistic
Relevance Framework: BM25 and Beyond", 2009, eq. 3.15).

The lists of words are our own choice [O]: general English of interfaces, in lower case and singular (`LEXICON`; the
NaviAgent paper clusters parameters by embeddings of their descriptions and gives no word lists), and words that negate,
withdraw or postpone a request in the languages with most speakers (`DENYING`).
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from langgraph_toolmem.base.caches import cached


def unaccented(text: str) -> str:
    """Return a text in its plainest characters: no accents of Latin letters, no ligatures, no full-width forms.

    >>> unaccented("São Tomé, ﬁn")
    'Sao Tome, fin'
    """
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    # Accents only: marks of other scripts, as in Hindi and Thai, are vowels.
    without_marks = re.sub("[\u0300-\u036f]", "", decomposed)
    # NFKD splits each Korean syllable into its letters; NFC joins them again.
    return unicodedata.normalize("NFC", without_marks)


_PIECE = re.compile(r"[^\W_]+")
# getUser, HTTPServer, v2, 2nd.
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
# Thai and Lao, Burmese, Khmer, Japanese kana, Chinese characters.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


def has_digit(token: str) -> bool:
    """Return True for a number or an identifier."""
    for char in token:
        if char.isdigit():
            return True
    return False


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, split at white space."""
    return frozenset(text.split())


STOP_WORDS: Final = word_set(
    "a about all also am an and any are as at be been but by can could did do does for from get gets getting had has "
    "have having he her him his how i if in into is it its just let lets letting like liked likes liking may me might "
    "must my need needed needing needs no not now of on or our ours out please pleased pleasing shall she should so "
    "some than that the their theirs them then there these they this those to up us want wanted wanting wants was we "
    "were what when where which who whom whose why will willing with would you your"
)
"""Words that occur in any text. They are compared by form, not by stem: "note" has the stem of "not"."""


def words(text: str, *, stems: bool = False) -> list[str]:
    """Return the words of a text in lower case, with identifiers split and accents of Latin letters removed.

    >>> words("getUserName(order_id=12, café)")
    ['get', 'user', 'name', 'order', 'id', '12', 'cafe']

    Args:
        stems: If True, return the stem of each word (see `stem`).
    """
    longest_cached = 48  # characters: longer tokens are data (base64, JSON without spaces) and would fill the cache
    split: list[str] = []
    for token in text.split():
        if len(token) <= longest_cached:
            split += _words_of_token(token)
        else:
            split += _split_token(token)
    if stems:
        # `map` calls the cached function from C: a comprehension took 1.1 to 1.8 times as long on 12 words.
        return list(map(stem, split))
    return split


def _split_token(token: str) -> tuple[str, ...]:
    parts: list[str] = []
    for piece in _PIECE.findall(unaccented(token)):
        for word in _CAMEL.split(piece):
            if _UNSPACED.search(word):
                # Scripts without spaces: characters and their pairs replace words.
                parts += word
                for first, second in pairwise(word):
                    parts.append(first + second)
            else:
                parts.append(word.casefold())
    return tuple(parts)


_words_of_token = cached(mebibytes=6)(_split_token)


def telling_stems(text: str) -> list[str]:
    """Return the stems of a text in order, without stop words ("the", "please")."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


@cached(mebibytes=4)
def stem(word: str) -> str:
    """Return a light stem of an English word.

    Plural endings, -ing, -ed, -ion and a last e are removed; any other word is returned unchanged.

    >>> [stem(w) for w in ("creating", "creates", "creation", "cities", "status")]
    ['creat', 'creat', 'creat', 'city', 'status']
    """
    # Endings of other languages have other meanings, and an id is not a word.
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    word = _without_plural(word)
    for suffix in ("ing", "ed"):
        if _has_suffix(word, suffix):
            return _without_doubled_letter(word[: -len(suffix)]).removesuffix("e")
    # "creation" has the stem of "create"; "nation" and "lion" are unchanged.
    if len(word) > 6 and word.endswith(("tion", "sion")):
        word = word.removesuffix("ion")
    if len(word) > 3:
        word = word.removesuffix("e")
    return word


def _without_plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _has_suffix(word: str, suffix: str) -> bool:
    """Return True if -ing or -ed is an ending: "running" has it, "string" and "feed" do not."""
    if not word.endswith(suffix) or word.endswith("eed"):
        return False
    rest = word[: -len(suffix)]
    return len(rest) >= 3 and re.search("[aeiouy]", rest) is not None


def _without_doubled_letter(rest: str) -> str:
    """Return "run" for the "runn" of "running"; "call", "pass" and "buzz" keep both letters."""
    if rest[-1] == rest[-2] and rest[-1] not in "lsz":
        return rest[:-1]
    return rest


STOP_STEMS: Final = frozenset(map(stem, STOP_WORDS))
"""Stems of the stop words, for texts in which "need" and "needs" must be one word."""


# --- texts compared ---


@dataclass(frozen=True, slots=True)
class FeatureWeights:
    """Weights of features, next to 1 for a stem.

    Attributes:
        stop: of a stop word. It is not 0: only "to" and "from" tell two booking tools apart.
        pair: of two neighbouring stems.
    """

    stop: float = 0.15
    pair: float = 0.5


FEATURE_WEIGHTS: Final = FeatureWeights()


def features(text: str) -> dict[str, float]:
    """Return the weighted stems and pairs of neighbouring stems of a text, not normalised.

    A stem that occurs n times has the weight 1 + ln n. Stop words are in no pair.
    """
    stems = words(text, stems=True)
    content = [word for word in stems if word not in STOP_STEMS]
    weights = dict.fromkeys(stems, FEATURE_WEIGHTS.stop)
    for word, occurrences in Counter(content).items():
        weights[word] = 1 + math.log(occurrences)
    for first, second in pairwise(content):
        weights[f"{first} {second}"] = FEATURE_WEIGHTS.pair
    if not weights:
        # A zero vector has no cosine.
        return {"": 1.0}
    return weights


@cached(mebibytes=4)
def grams(term: str) -> tuple[str, ...]:
    """Return the runs of 4 characters of a word. A pair of words has none."""
    if " " in term:
        return ()
    framed = f"<{term}>"
    parts = []
    for start in range(len(framed) - 3):
        # The mark distinguishes a part of a word from a word of four letters.
        parts.append(f"~{framed[start : start + 4]}")
    return tuple(parts)


def similarity(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Return the cosine of two sparse vectors of length 1: 0 (nothing shared) to 1 (the same bag).

    >>> similarity({"a": 0.6, "b": 0.8}, {"b": 1.0})
    0.8
    """
    shared = left.keys() & right.keys()
    products = [left[key] * right[key] for key in shared]
    return min(1.0, sum(products))  # rounding can exceed 1


def rarity(uses: float, total: float) -> float:
    """Return the inverse document frequency (BM25) of a word that `uses` of `total` texts contain."""
    return math.log(1 + (total - uses + 0.5) / (uses + 0.5))


class LexicalIndex:
    """An index that ranks texts by BM25 over their `features`. In RAM, rebuilt on open.

    It is a separate index, because it needs neither numpy, like `WordIndex` of the tool search, nor a way to add or
    remove texts, like `CaseIndex` (docs/architecture.md has the figures).

    score(d, q) = Σ_f w(f, q) · idf(f) · w(f, d) (k1 + 1) / (w(f, d) + k1 (1 − b + b |d| / avg |d|)) with idf(f) = ln(1
    + (N − n_f + ½) / (n_f + ½)), divided by the score of an infinitely repeated query, so that scores are between 0 and
    1.

    Args:
        texts: (id, text) pairs; of two with the same id the later counts.
    """

    # Within the ranges that Robertson and Zaragoza found good on many collections: 1.2 to 2, and 0.5 to 0.8.
    k1 = 1.2
    b = 0.75

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        documents: dict[str, dict[str, float]] = {}
        for key, text in texts:
            documents[key] = features(text)
        sizes = [sum(weights.values()) for weights in documents.values()]
        mean_size = sum(sizes) / max(len(sizes), 1)
        self._ids = list(documents)
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for number, (weights, size) in enumerate(zip(documents.values(), sizes, strict=True)):
            # The part of a score that is independent of the query is computed once.
            saturation = self.k1 * (1 - self.b + self.b * size / mean_size)
            for feature, weight in weights.items():
                part = weight * (self.k1 + 1) / (weight + saturation)
                self._postings.setdefault(feature, []).append((number, part))

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return the best k (id, score), best first, without texts that share no word with the query.

        Ties keep the order of the texts.
        """
        scores: dict[int, float] = {}
        highest_possible = 0.0
        total = len(self._ids)
        for key, weight in features(query).items():
            postings = self._postings.get(key, ())
            idf = rarity(len(postings), total)
            highest_possible += weight * idf * (self.k1 + 1)
            for number, part in postings:
                scores[number] = scores.get(number, 0.0) + weight * idf * part

        # Of equal scores the earlier text: the order must not change from one process to another.
        def rank(scored: tuple[int, float]) -> tuple[float, int]:
            number, score = scored
            return score, -number

        best = heapq.nlargest(max(k, 0), scores.items(), key=rank)
        return [(self._ids[number], score / highest_possible) for number, score in best]


# --- words of interfaces ---


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


# --- words that deny ---


def _denying() -> frozenset[str]:
    by_language = (
        # "t" is the end of "don't".
        "not t no never none nothing without stop cancel forget ignore skip disregard instead later wait",  # en
        "nicht kein keine keinen nie niemals nichts ohne stopp halt abbrechen vergiss",  # de
        "vergessen spater statt lass",  # de
        "ne pas jamais rien aucun aucune sans arrete annule annuler oublie oublier plutot",  # fr
        "no nunca nada ningun ninguna sin deja detente cancela cancelar olvida olvidalo luego despues",  # es
        "non mai niente nessun nessuna senza ferma annulla lascia dimentica dopo invece",  # it
        "nao nem nunca nada nenhum nenhuma sem pare cancele esqueca deixe depois",  # pt
        "niet geen nooit niks zonder stop annuleer vergeet laat straks",  # nl
        "inte icke ikke aldrig aldri ingen inga utan uden uten",  # sv, da, nb
        "sluta avbryt avbryd glom glem senare senere",  # sv, da, nb
        "nie nigdy zaden zadna bez przestan anuluj zapomnij pozniej",  # pl
        "degil hayir yok hic asla iptal vazgec unut bosver sonra dur",  # tr
        "не нет ни никогда без отмени отмена стоп забудь хватит позже потом",  # ru
        "не ні ніколи без скасуй забудь пізніше",  # uk
        "不 没 別 别 勿 莫 取消 算了 忘 停 以后 稍后",  # zh
        "ない ません なし やめ 中止 取消 後で",  # ja
        "안 못 말고 취소 그만 나중",  # ko
        "لا لم لن ليس بدون الغ إلغاء انس لاحقا",  # ar
        "नहीं मत रद्द",  # hi
    )
    denying: set[str] = set()
    for line in by_language:
        for entry in line.split():
            # `words` splits "取消" into two characters and their pair: a character alone occurs in other words, so the
            # longest part represents the entry.
            denying.add(max(words(entry), key=len))
    return frozenset(denying)


DENYING: Final = _denying()
"""The words as `words` returns them.

They matter only for words without a record: a word of earlier requests with the same call is accepted. Affixes are not
in the list, so Turkish and Korean requests that negate only by the verb's ending are not recognised.
"""
