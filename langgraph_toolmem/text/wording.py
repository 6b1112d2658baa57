"""The wording of requests and of tools: what is compared, searched and embedded.

A request has sentences and clauses, and terms for comparing it with others. "Plot visits since October 6" and "Plot
visits since 2023-11-12" are the same request with another date, and "… since Sunday" is slightly different. So among
the terms, the kind of a value (`text.values`) replaces the value.

A tool has searchable words, field by field. Its name and parameters are identifiers: ``getUserName`` is split where the
case changes; ``searchwebrequest`` has no such place and is split into words that other tools use (``search web
request``), if possible.

A question needs a tool that reads, an order needs a tool that changes something. With words alone, "How much money do
we have?" finds a refund, because both are about money. The effect of a tool is known (HTTP's method, the annotations of
MCP, the verb in its name), and so is the wanted effect of a request, mostly from its first word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.text import one_line
from langgraph_toolmem.text.meaning import EntityRoute, canonical, names_in, resource, route_of, singular
from langgraph_toolmem.text.schema import Described
from langgraph_toolmem.text.values import RANKED, values_in
from langgraph_toolmem.text.words import (
    FEATURE_WEIGHTS,
    LEXICON,
    STOP_STEMS,
    STOP_WORDS,
    has_digit,
    stem,
    telling_stems,
    unaccented,
    word_set,
    words,
)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of reading a request.

    Attributes:
        chars: read characters: a longer text is a pasted document.
        terms: compared words and pairs of words.
        sentences: searched sentences.
        clauses: searched clauses.
        small_talk: longest small talk in characters.
    """

    chars: int = 4_000
    terms: int = 400
    sentences: int = 8
    clauses: int = 16
    small_talk: int = 200


REQUEST_LIMITS: Final = RequestLimits()
# --- sentences and clauses ---

SENTENCE_END: Final = (
    # Not after e.g., i.e., Mr., vs., No., or a single initial.
    r"(?-i:(?<=[.?!;…])(?<!\b[eE]\.g\.)(?<!\bi\.e\.)(?<!\b[MD]r\.)(?<!\bMrs\.)(?<!\bvs\.)(?<!\bNo\.)(?<!\b[A-Z]\.)\s+"
    r"|(?<=[。！？；])\s*"
    r"|(?<!\s)\s*[\r\n]+\s*(?:[-*•]\s+|\(?\d{1,2}[.)]\s+)?)"
)
"""A regular expression for the text between two sentences, list markers included."""
NEXT: Final = "and then|then|after that|afterwards|also|additionally|otherwise|if so|if not|finally|lastly"
"""A regular expression for words that begin the next clause."""
_CLAUSE = re.compile(
    # Of two joining words the longer one comes first: an alternation takes the first that matches.
    r"(?:,|(?<!\s))\s+(?:and then|and also|as well as|along with|together with|followed by|such as|and|or"
    r"|then|also|additionally|plus|including|finally)\s+"
    r"|,\s+|;\s*|:\s+|[，、；]\s*",
    re.IGNORECASE,
)


class Pieces(NamedTuple):
    """A request in parts, without repetition, in the order of the text.

    Attributes:
        sentences: at least one, unless the text has no word.
        clauses: the clauses of all sentences. A sentence without a joining word is one clause.
    """

    sentences: tuple[str, ...]
    clauses: tuple[str, ...]


def split_clauses(text: str) -> Pieces:
    """Return the sentences and clauses of a request. Of long texts only the beginning is read.

    >>> split_clauses("Find a flight to Oslo and book a hotel. Mail me.").clauses
    ('Find a flight to Oslo', 'book a hotel', 'Mail me')
    """
    # A request may need several tools. Of 765 requests over 2,490 APIs, a fused search of words and vectors found all
    # tools among the first 20 for 77.5 % by clauses, and for 71.8 % by the whole request.
    sentences = _different(re.split(SENTENCE_END, text[: REQUEST_LIMITS.chars]))[: REQUEST_LIMITS.sentences]
    clauses: list[str] = []
    for sentence in sentences:
        for clause in _CLAUSE.split(sentence):
            clauses.append(clause.rstrip(".?!…。！？ "))
    return Pieces(sentences, _different(clauses)[: REQUEST_LIMITS.clauses])


def _different(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that contain a word, each once."""
    different: dict[str, None] = {}
    for part in parts:
        stripped = part.strip()
        if re.search(r"\w", stripped):
            different[stripped] = None
    return tuple(different)


# --- terms ---


def tokens(text: str) -> list[str]:
    """Return the stems of a request and the kinds of its values, in order.

    >>> tokens("Move the 9:30 meeting to March 3rd")
    ['mov', 'the', '<time>', 'meet', 'to', '<date>']
    """
    text = text[: REQUEST_LIMITS.chars]
    sequence: list[str] = []
    end_of_last = 0
    for value in values_in(text, RANKED):
        sequence += words(text[end_of_last : value.start], stems=True)
        sequence.append(f"<{value.kind.lower()}>")
        end_of_last = value.end
    sequence += words(text[end_of_last:], stems=True)
    return sequence


@cached(mebibytes=6)
def terms_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, and its different pairs of neighbouring words joined by a space.

    The first and the last word form a pair with the edge of the text. At most `REQUEST_LIMITS.terms`.
    """
    sequence = tokens(text)
    if not sequence:
        return ()
    edge = "<edge>"
    pairs = [f"{first} {second}" for first, second in pairwise([edge, *sequence, edge])]
    return tuple(dict.fromkeys(sequence + pairs))[: REQUEST_LIMITS.terms]


def is_usual(term: str) -> bool:
    """Return True for a word that any request may contain ("please", "the"), or a pair of such words."""
    for word in term.split(" "):
        if stem(word) not in STOP_STEMS:
            return False
    return True


@cached(mebibytes=6)
def term_weight(term: str) -> float:
    """Return the weight of a word or a pair of words, judged by its form alone."""
    weight = 1.0
    if " " in term:
        weight = FEATURE_WEIGHTS.pair
    if is_usual(term):
        weight *= FEATURE_WEIGHTS.stop
    return weight


# --- small talk ---


def is_small_talk(text: str, usual: frozenset[str]) -> bool:
    """Return True if a text is not a request.

    Args:
        usual: further words without a request.

    >>> is_small_talk("Good morning, how are you?", frozenset({"how", "are", "you"}))
    True
    >>> is_small_talk("Good morning, book me a room.", frozenset())
    False
    """
    if len(text) > REQUEST_LIMITS.small_talk:
        return False
    # A wish ("have a nice day") is removed, and a suffix after an apostrophe: "that's" is "that", "don't" is "do".
    plain = re.sub(r"(?<=\w)(?:n't|'\w+)\b|\b(?:good|great|nice) day\b", "", text.replace("’", "'"))
    for word in words(plain):
        if word not in LEXICON.small_talk and word not in usual:
            return False
    return True


# --- unused names and numbers ---


def left_over(text: str, taken: Iterable[str]) -> frozenset[str]:
    """Return the names in a text, and words with a digit, that are not in a value of a call."""
    remaining = set(names_within(text) | _numbers(text))
    for value in taken:
        remaining -= _parts(value)
    return frozenset(remaining)


@cached(mebibytes=2)
def names_within(text: str) -> frozenset[str]:
    """Return the capitalised words inside sentences, in lower case. A word all in capitals is not a name."""
    names: set[str] = set()
    # After a letter, a comma or a colon: the first word of a sentence always has a capital.
    for word in re.findall(r"(?<=[\w,;:] )[^\W\d_]\w+", text):
        if word[0].isupper() and not word.isupper():
            names.add(word.lower())
    return frozenset(names)


@cached(mebibytes=2)
def _numbers(text: str) -> frozenset[str]:
    return frozenset([part for part in _parts(text) if has_digit(part)])


@cached(mebibytes=4)
def _parts(text: str) -> frozenset[str]:
    return frozenset([part.strip(".,;:!?()'\"") for part in text.lower().split()])


# --- words of tools ---


@dataclass(frozen=True, slots=True)
class WordingLimits:
    """Bounds of reading tools.

    Attributes:
        chars: characters of a description; the rest of a long one is detail, and would outweigh the name.
        parameters: parameters of a tool.
        many_tools: least number of tools with a word that may be a piece of others, or with a sentence that is left
            out.
        embedded: characters of a tool's text for an embedder.
    """

    chars: int = 4_000
    parameters: int = 100
    many_tools: int = 3
    embedded: int = 1_000


WORDING_LIMITS: Final = WordingLimits()


def kit_name(spec: Described) -> str:
    """Return the name of a tool's toolkit, "" if it is on its own.

    It is declared, or taken from a name like ``kit.tool``, ``kit/tool``, ``kit:tool`` or ``kit__tool``.
    """
    if spec.toolkit:
        return spec.toolkit
    # "::" comes before ":", which is a part of it.
    for joint in ("/", "::", ":", "__", "."):
        kit, _, tool = spec.name.rpartition(joint)
        if kit and tool:
            return kit
    return ""


def kit_of(spec: Described) -> str:
    """Return the identity of a toolkit, "" if the tool is on its own: equal names in two categories differ."""
    name = kit_name(spec)
    if not name:
        return ""
    return f"{spec.category}\n{name}"


# The tags of operations are no field: on five public APIs they moved the first hit by at most one request in 100
# (docs/figures.md, "Tool search inside one API").
class ToolFields(NamedTuple):
    """The stems of a tool, without stop words, in order and with repetition."""

    name: tuple[str, ...]
    description: tuple[str, ...]
    parameters: tuple[str, ...]
    described: tuple[str, ...]
    """Of the descriptions of the parameters."""
    toolkit: tuple[str, ...]
    category: tuple[str, ...]


class Wording:
    """The words of a catalogue of tools, which determine the splits of glued words."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._sentences: Counter[str] = Counter()
        self.pieces = cached(mebibytes=8)(self._pieces)
        self.identifier = cached(mebibytes=8)(self._identifier)

    def learn(self, spec: Described) -> None:
        self._count(spec, 1)

    def forget(self, spec: Described) -> None:
        self._count(spec, -1)

    def _count(self, spec: Described, sign: int) -> None:
        used = {*words(spec.description[: WORDING_LIMITS.chars]), *words(kit_name(spec)), *words(spec.name)}
        self._uses.update(dict.fromkeys(used, sign))
        self._sentences.update(dict.fromkeys(_sentences(spec), sign))
        # A word of one tool may be a piece of another's glued word.
        self.pieces.cache_clear()
        self.identifier.cache_clear()

    def fields(self, spec: Described) -> ToolFields:
        """Return the searchable stems of a tool. The words of its toolkit are not counted again in its name."""
        # All tools of a kit share its words: counted in each name, they would hide the tool's own words.
        toolkit = self.identifier(kit_name(spec))
        in_toolkit = set(toolkit)
        parameters: list[str] = []
        descriptions: list[str] = []
        for name in list(spec.properties)[: WORDING_LIMITS.parameters]:
            parameters += self.identifier(name)
            description = spec.properties[name].get("description")
            if isinstance(description, str):
                descriptions.append(description)
        return ToolFields(
            name=tuple([word for word in self.identifier(spec.name) if word not in in_toolkit]),
            description=tuple(telling_stems(spec.description[: WORDING_LIMITS.chars])),
            parameters=tuple(parameters),
            described=tuple(telling_stems(" ".join(descriptions)[: WORDING_LIMITS.chars])),
            toolkit=toolkit,
            category=tuple(telling_stems(f"{spec.category} {names_in(spec.route)}")),
        )

    def _identifier(self, text: str) -> tuple[str, ...]:
        """Return the stems of an identifier; a glued word is included as a whole and in its pieces."""
        stems = telling_stems(text)
        for word in words(text):
            for piece in self.pieces(word):
                if piece not in STOP_WORDS:
                    stems.append(stem(piece))
        return tuple(stems)

    def own_words(self, spec: Described) -> str:
        """Return the description without sentences of three or more tools; all of it if none is left.

        Servers put "This tool belongs to the …" before each description, which makes all tools similar for an embedder.
        """
        sentences = _sentences(spec)
        own = [sentence for sentence in sentences if self._sentences[sentence] < WORDING_LIMITS.many_tools]
        return " ".join(own or sentences)

    def plain(self, text: str) -> str:
        """Return an identifier as words."""
        plain: list[str] = []
        for word in words(text):
            plain += self.pieces(word) or (word,)
        return " ".join(plain)

    def _pieces(self, word: str) -> tuple[str, ...]:
        """Return the words that a glued word consists of; empty if it is one word.

        They are the fewest known words that compose it, each used by more tools than the glued word.
        """
        shortest, longest, longest_piece = 6, 48, 14  # letters
        if not (shortest <= len(word) <= longest and word.isascii() and word.isalpha()):
            return ()
        least_uses = max(WORDING_LIMITS.many_tools, self._uses[word] + 1)
        # The cheapest way to split word[:end], by `end`.
        best = {0: _Split(0, ())}
        for end in range(2, len(word) + 1):
            for start in range(max(0, end - longest_piece), end - 1):
                piece = word[start:end]
                if start not in best or len(piece) == len(word) or not self._is_piece(piece, least_uses):
                    continue
                split = best[start].with_piece(piece)
                if end not in best or split.cost < best[end].cost:
                    best[end] = split
        if len(word) not in best:
            return ()
        return best[len(word)].pieces

    def _is_piece(self, piece: str, least_uses: int) -> bool:
        # Two letters are a word by chance in almost every glued word.
        if len(piece) < 3:
            return piece in ("by", "id", "of", "in", "to")
        return self._uses[piece] >= least_uses


class _Split(NamedTuple):
    """The beginning of a word in pieces. A piece costs 1, and 3 if it has three letters or fewer."""

    cost: int
    pieces: tuple[str, ...]

    def with_piece(self, piece: str) -> _Split:
        """Return the split with one more piece."""
        cost = self.cost + 1
        # Three letters are a word by chance more often than more letters are.
        if len(piece) <= 3:
            cost += 2
        return _Split(cost, (*self.pieces, piece))


def embedded_text(spec: Described, wording: Wording) -> str:
    """Return the text of a tool for an embedder: its name in words, description, parameters and category."""
    name = wording.plain(spec.name)
    kit = kit_name(spec)
    if kit:
        name = f"{kit}: {_without(name, wording.plain(kit))}"
    parameters = ", ".join(list(spec.properties)[: WORDING_LIMITS.parameters])
    parts = [name, wording.own_words(spec), parameters, spec.category]
    return ". ".join([part for part in parts if part])[: WORDING_LIMITS.embedded]


def _without(name: str, kit: str) -> str:
    """Return a tool's words without those of its toolkit, if any are left."""
    kit_words = set(kit.split())
    own = [word for word in name.split() if word not in kit_words]
    return " ".join(own) or name


def _sentences(spec: Described) -> list[str]:
    return re.split(SENTENCE_END, one_line(spec.description[: WORDING_LIMITS.chars]))


def tool_text(spec: Described) -> str:
    """Return the searchable text of a tool: its name, its description, the names of its parameters."""
    return f"{spec.name}. {spec.description.strip()} ({', '.join(spec.properties)})"


# --- effects of requests and tools ---

ASKS, ORDERS, UNCLEAR = 1.0, -1.0, 0.0
"""Values of a request; a tool that reads is 1.0, one that changes something -1.0, an unknown one 0.0."""

_POLITE: Final = word_set(
    "please can could would will you i we want wanted need wish to like d ll let me us kindly just now then also and "
    "hi hello hey ok okay so help "
    "bitte kannst konnen konnten du sie ich mochte will wir s il vous plait peux pouvez je voudrais veux nous "
    "por favor puedes podria quiero quisiera nosotros per puoi potrebbe vorrei voglio pode poderia quero gostaria"
)
"""Words before the wanted action of a request, without accents."""
_QUESTIONS: Final = word_set(
    "what which who whom whose where when why how is are was were do does did has have had am "  # en
    "was welche welcher welches welchen wer wem wen wo wann warum wie wieviel wieviele ist sind hat haben gibt "  # de
    "quel quelle quels quelles qui ou quand pourquoi comment combien est sont "  # fr
    "que cual cuales quien quienes donde cuando cuanto cuanta cuantos cuantas como hay es son "  # es
    "quale quali chi dove quanto quanta quanti quante perche "  # it
    "qual quais quem onde quantos quantas "  # pt
    "wat welke welk waar wanneer waarom hoe hoeveel zijn heeft "  # nl
    "vad hva hvad vilka vilken vilket hvilke hvilken hvilket vem hvem hur hvor hvordan nar "  # sv, da, nb
    "co ktory ktora ktore jaki jaka jakie kto komu gdzie kiedy dlaczego jak ile czy "  # pl
    "kac hangi kim nerede nasil neden niye "  # tr
    "что какой какая какие каких кто кому где когда почему как сколько есть ли "  # ru
    "що який яка які хто кому де коли чому як скільки чи є "  # uk
    "كم هل ما ماذا متى أين كيف أي لماذا"  # ar
)
_ASKING: Final = (
    LEXICON.reading - word_set("calculate compute estimate predict compare summarize explain detect extract")
) | (
    word_set(
        "tell know see look give download "
        "zeige zeig finde suche such liste nenne gib sag sage hole hol lies prufe "
        "montre montrez affiche affichez trouve trouvez cherche cherchez liste listez donne donnez dis obtiens "
        "muestra muestrame busca encuentra lista dame dime mostrar consulta "
        "mostra mostrami cerca trova elenca dammi dimmi mostre encontre busque liste "
        "toon zoek vind geef bekijk "
        "visa vis sok hitta finn lista hamta hent "
        "pokaz znajdz wyszukaj wyswietl podaj "
        "goster bul listele ara "
        "покажи покажите найди найдите выведи дай дайте скажи "
        "знайди знайдіть покажіть виведи скажи "
        "اعرض أظهر ابحث أعطني أخبرني"
    )
)
_REMOVING: Final = word_set(
    "delete remove cancel erase wipe purge destroy drop clear empty discard revoke terminate end stop kill detach "
    "disconnect unsubscribe unlink unassign uninstall release kick ban expire withdraw retract leave "
    "losche entferne storniere kundige beende supprime supprimez annule annulez retire retirez elimina borra cancela "
    "quita cancella rimuovi annulla apague exclua cancele remova "
    "annuleer verwijder wis avbryt avboka avbestall radera slett slet afbestil anuluj usun iptal sil kaldir "
    "отмени отмените удали удалите убери скасуй скасуйте видали видаліть ألغ ألغي احذف أزل"
)
_ORDERING: Final = (
    ((LEXICON.acts | LEXICON.changing) - LEXICON.reading - word_set("tell give"))
    | _REMOVING
    | word_set(
        "void erstelle erzeuge sende schicke andere buche kaufe fuge starte stoppe setze "
        "cree creez envoie envoyez modifie modifiez achete reserve ajoute demarre "
        "crea envia modifica cambia compra reserva agrega inicia "
        "invia aggiungi prenota crie envie altere compre adicione "
        "maak stuur verzend wijzig voeg koop boek "
        "skapa opprett opret skicka andra endre aendr lagg tilfoj kop bestall bestil "
        "utworz dodaj wyslij zmien kup zarezerwuj "
        "olustur gonder degistir ekle "
        "создай создайте отправь отправьте измени измените добавь купи забронируй "
        "створи створіть надішли зміни додай купи забронюй "
        "أنشئ أرسل غير عدل أضف اشتر احجز"
    )
)
# In these languages the word may be anywhere, most often last, and is not always a separate word.
_QUESTIONS_WITHIN: Final = re.compile(
    "哪|多少|什么|什麼|谁|誰|几|幾|吗|嗎|怎么|怎麼|为什么|何時|"  # zh
    "いくつ|いくら|なに|何|どれ|どの|どこ|だれ|いつ|ますか|ですか|"  # ja
    "몇|무엇|뭐|어떤|누구|언제|어디|얼마|나요|까요|습니까|"  # ko
    "क्या|कौन|कितन|कब|कहाँ|कैसे"  # hi
)
_ASKING_WITHIN: Final = re.compile(
    "显示|顯示|查找|查询|查詢|查看|列出|搜索|告诉|告訴|見せ|教え|表示|探し|検索|一覧|보여|알려|찾아|조회|दिखा|बता|खोज|ढूंढ"
)
_REMOVING_WITHIN: Final = re.compile("取消|删除|刪除|移除|取り消|キャンセル|削除|취소|삭제|रद्द|हटा")
_ORDERING_WITHIN: Final = re.compile(
    f"{_REMOVING_WITHIN.pattern}|创建|創建|新建|发送|發送|修改|更新|添加|购买|購買|预订|預訂|退款|"
    "作成|送信|変更|追加|購入|予約|만들|생성|보내|변경|추가|구매|예약|बना|भेज|बदल|जोड़|खरीद"
)
_DETERMINERS: Final = word_set(
    "the a an my our your his her their its this that these those all every it them him up out"
)

_TURKISH_QUESTIONS: Final = word_set("kac hangi kim nerede nasil neden niye")
_TURKISH_ASKING: Final = word_set("goster listele")
_TURKISH_ORDERS: Final = word_set("iptal olustur gonder degistir ekle")


def _last_verb(text: str, said: Sequence[str]) -> float:
    """Return the wanted effect of a clause by a question word anywhere, otherwise by its last verb."""
    if _QUESTIONS_WITHIN.search(text):
        return ASKS
    asks, orders = _last_place(_ASKING_WITHIN, text), _last_place(_ORDERING_WITHIN, text)
    if asks > orders:
        return ASKS
    if orders > asks:
        return ORDERS
    if not _TURKISH_QUESTIONS.isdisjoint(said):
        return ASKS
    # Turkish has its verb last, or next to last where "et" (do) follows: "iptal et", "goster".
    last_words = said[-2:]
    if not _TURKISH_ORDERS.isdisjoint(last_words):
        return ORDERS
    if not _TURKISH_ASKING.isdisjoint(last_words):
        return ASKS
    return UNCLEAR


def _last_place(verbs: re.Pattern[str], text: str) -> int:
    """Return the position of the last verb of a pattern, or -1."""
    place = -1
    for match in verbs.finditer(text):
        place = match.start()
    return place


def _begin(said: Sequence[str]) -> int:
    """Return the position of the first word of the wanted action."""
    start = 0
    while start < len(said) - 1 and said[start] in _POLITE and said[start] not in _QUESTIONS:
        start += 1
    return start


def _first_verb(said: Sequence[str]) -> float:
    """Return the wanted effect of a clause by its first word after those of politeness."""
    start = _begin(said)
    first, following = said[start], ""
    if start + 1 < len(said):
        following = said[start + 1]
    # "Get" asks, and "get rid" removes.
    if (first, following) == ("get", "rid"):
        return ORDERS
    if first in _QUESTIONS or first in _ASKING:
        return ASKS
    # "Mute the call": an unknown word before a determiner is a verb too.
    if first in _ORDERING or (following in _DETERMINERS and first not in STOP_WORDS):
        return ORDERS
    return UNCLEAR


def _plain_words(text: str) -> list[str]:
    return [unaccented(word) for word in words(text)]


@cached(mebibytes=4)
def wanted_effect(text: str) -> float:
    """Return ASKS, ORDERS or UNCLEAR for a request or a clause of one.

    >>> wanted_effect("How much credit is left?"), wanted_effect("Please cancel it"), wanted_effect("in the evening")
    (1.0, -1.0, 0.0)
    """
    said = _plain_words(text)
    if not said:
        return UNCLEAR
    effect = _first_verb(said)
    if effect == UNCLEAR:
        effect = _last_verb(text, said)
    if effect == UNCLEAR and text.rstrip().endswith(("?", "？", "؟")):
        return ASKS
    return effect


_MAKING_VERBS: Final = word_set("create make add new open start write draft register issue build generate")
_UPDATING: Final = word_set(
    "update change rename edit modify set move replace adjust correct fix raise lower increase extend"
)


class Wanted(NamedTuple):
    """The effect that a clause of a request wants.

    Attributes:
        effect: ASKS, ORDERS or UNCLEAR.
        removal: 1.0 for an order to remove something, -1.0 for another order, otherwise 0.0.
        making: 1.0 for an order to make something new, -1.0 for an order to change something, otherwise 0.0.
        plurals, singulars: stems of its words, if it asks: "which pods" wants a list of pods, "the pod" one of them.
    """

    effect: float
    removal: float
    making: float
    plurals: frozenset[str]
    singulars: frozenset[str]


def wanted_by(query: str, clauses: Iterable[str]) -> list[Wanted]:
    """Return the wanted effect of each clause of a request; an unclear clause has that of the clause before it."""
    effect = wanted_effect(query)
    wishes: list[Wanted] = []
    for clause in clauses:
        effect = wanted_effect(clause) or effect
        said = _plain_words(clause)
        if effect == ORDERS:
            wishes.append(_order(clause, said))
        elif effect == ASKS:
            wishes.append(_question(said))
        else:
            wishes.append(Wanted(UNCLEAR, 0.0, 0.0, frozenset(), frozenset()))
    return wishes


def _order(clause: str, said: Sequence[str]) -> Wanted:
    removal = -1.0
    if not _REMOVING.isdisjoint(said) or _REMOVING_WITHIN.search(clause):
        removal = 1.0
    making = 0.0
    if said:
        verb = said[_begin(said)]
        making = float(verb in _MAKING_VERBS) - float(verb in _UPDATING)
    return Wanted(ORDERS, removal, making, frozenset(), frozenset())


def _question(said: Sequence[str]) -> Wanted:
    plurals: set[str] = set()
    singulars: set[str] = set()
    for word in said:
        base = singular(word)
        if base == word:
            singulars.add(stem(base))
        else:
            plurals.add(stem(base))
    return Wanted(ASKS, 0.0, 0.0, frozenset(plurals), frozenset(singulars))


class Handling(NamedTuple):
    """The object of an HTTP operation, and its action.

    Attributes:
        noun: stem of the last word of the path's subject, "" without a path.
        lists: 1.0 if it reads a collection, -1.0 if it reads one element, otherwise 0.0.
        makes: 1.0 if it adds to the collection at the end of its path, -1.0 if it changes an element, otherwise 0.0.
    """

    noun: str
    lists: float
    makes: float


def handling_of(spec: Described) -> Handling:
    """Return a tool's object and action.

    >>> from langgraph_toolmem.runs.tools import ToolSpec
    >>> handling_of(ToolSpec("cancel", "", {}, route="PATCH /orders/{id}"))
    Handling(noun='order', lists=0.0, makes=-1.0)
    """
    route = route_of(spec.route)
    if route is None:
        return Handling("", 0.0, 0.0)
    nouns = resource(route.path)
    if not nouns:
        return Handling("", 0.0, 0.0)
    noun = stem(nouns[-1])
    if route.lists:
        return Handling(noun, lists=1.0, makes=0.0)
    if route.reads:
        return Handling(noun, lists=-1.0, makes=0.0)
    return Handling(noun, lists=0.0, makes=_makes(route, nouns[-1]))


def _makes(route: EntityRoute, noun: str) -> float:
    """Return `Handling.makes` of a route that does not read."""
    last = route.path.rpartition("/")[2]
    if route.method in ("PUT", "PATCH"):
        return -1.0
    if route.method != "POST":
        return 0.0
    if last.endswith("{}"):
        return -1.0
    # `POST /orders` adds an order, and `POST /orders/search` does not.
    if canonical(last)[-1:] == (noun,):
        return 1.0
    return 0.0


def effect_of(spec: Described) -> float:
    """Return 1.0 for a tool that reads, -1.0 for one that changes something, 0.0 if unknown.

    If an API reads by POST, the verb in the name shows that a tool reads. This decides a rank here, never a permission.
    Undeclared tools are not classified by their names: by the verbs of their names alone, 2 % fewer requests of a
    public catalogue of 2,490 tools found all their tools (``python -m benchmarks.tool_search``).
    """
    if spec.read_only is None or spec.streams:
        return 0.0
    if spec.read_only:
        return 1.0
    named = words(spec.name)
    # A verb is the first word of a name, or its last: `getUser`, `conversations.list`.
    ends = frozenset((*named[:1], *named[-1:]))
    if ends & LEXICON.reading:
        return 1.0
    # APIs that only use POST read by it too, so POST without a verb of change is no evidence.
    if spec.route.startswith("POST ") and not ends & LEXICON.changing:
        return 0.0
    return -1.0
