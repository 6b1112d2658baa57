"""Effects of requests and tools: a question needs a tool that reads, an order needs a tool that changes something.

With words alone, "How much money do we have?" finds a refund, because both are about money. The effect of a tool is
known (HTTP's method, the annotations of MCP, the verb in its name), and so is the wanted effect of a request, mostly
from its first word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import canonical, resource, route_of, singular
from langgraph_toolmem.text.words import LEXICON, STOP_WORDS, stem, unaccented, word_set, words

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
    start = _begin(said)
    first, following = said[start], ""
    if start + 1 < len(said):
        following = said[start + 1]
    gets_rid = (first, following) == ("get", "rid")
    if first in _QUESTIONS or (first in _ASKING and not gets_rid):
        return ASKS
    # "Mute the call": an unknown word before a determiner is a verb too.
    before_determiner = following in _DETERMINERS and first not in STOP_WORDS
    if first in _ORDERING or gets_rid or before_determiner:
        return ORDERS
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


def handling_of(spec: ToolSpec) -> Handling:
    """Return a tool's object and action.

    >>> from langgraph_toolmem.runs.tools import ToolSpec
    >>> handling_of(ToolSpec("cancel", "", {}, route="PATCH /orders/{id}"))
    Handling(noun='order', lists=0.0, makes=-1.0)
    """
    nothing = Handling("", 0.0, 0.0)
    route = route_of(spec.route)
    if route is None:
        return nothing
    nouns = resource(route.path)
    if not nouns:
        return nothing
    last = route.path.rpartition("/")[2]
    is_of_element = last.endswith("{}")
    lists = makes = 0.0
    if route.reads and route.lists:
        lists = 1.0
    elif route.reads:
        lists = -1.0
    elif route.method in ("PUT", "PATCH") or (route.method == "POST" and is_of_element):
        makes = -1.0
    # `POST /orders` adds an order, and `POST /orders/search` does not.
    elif route.method == "POST" and canonical(last)[-1:] == nouns[-1:]:
        makes = 1.0
    return Handling(stem(nouns[-1]), lists, makes)


def effect_of(spec: ToolSpec) -> float:
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
