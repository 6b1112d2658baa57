"""Effects of requests and tools: a request that asks needs a tool that reads, one that orders a tool that changes.

Words alone rank "How much money do we have?" to a refund, because both speak of money. The effect of a tool is known
(HTTP's method, the annotations of MCP, the verb in its name), and so is what a request wants, mostly from its first
word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import ACTS, CHANGING, READING
from langgraph_toolmem.text.words import STOP_WORDS, unaccented, word_set, words

ASKS, ORDERS, UNCLEAR = 1.0, -1.0, 0.0
"""Values of a request; a tool that reads is 1.0, one that changes something -1.0, an unknown one 0.0."""

_POLITE: Final = word_set(
    "please can could would will you i we want wanted need wish to like d ll let me us kindly just now then also and "
    "hi hello hey ok okay so help "
    "bitte kannst konnen konnten du sie ich mochte will wir s il vous plait peux pouvez je voudrais veux nous "
    "por favor puedes podria quiero quisiera nosotros per puoi potrebbe vorrei voglio pode poderia quero gostaria"
)
"""Words in front of what a request wants, without accents."""
_QUESTIONS: Final = word_set(
    "what which who whom whose where when why how is are was were do does did has have had am "
    "was welche welcher welches welchen wer wem wen wo wann warum wie wieviel wieviele ist sind hat haben gibt "
    "quel quelle quels quelles qui ou quand pourquoi comment combien est sont "
    "que cual cuales quien quienes donde cuando cuanto cuanta cuantos cuantas como hay es son "
    "quale quali chi dove quanto quanta quanti quante perche qual quais quem onde quantos quantas"
)
_ASKING: Final = (READING - word_set("calculate compute estimate predict compare summarize explain detect extract")) | (
    word_set(
        "tell know see look give download "
        "zeige zeig finde suche such liste nenne gib sag sage hole hol lies prufe "
        "montre montrez affiche affichez trouve trouvez cherche cherchez liste listez donne donnez dis obtiens "
        "muestra muestrame busca encuentra lista dame dime mostrar consulta "
        "mostra mostrami cerca trova elenca dammi dimmi mostre encontre busque liste"
    )
)
_ORDERING: Final = (ACTS | CHANGING) - READING - word_set("tell give") | word_set(
    "erstelle erzeuge losche storniere sende schicke andere buche kaufe fuge entferne kundige starte stoppe setze "
    "cree creez supprime supprimez annule annulez envoie envoyez modifie modifiez achete reserve ajoute demarre "
    "crea elimina borra cancela envia modifica cambia compra reserva agrega inicia "
    "cancella invia aggiungi prenota crie apague exclua envie altere compre adicione"
)
_REMOVING: Final = word_set(
    "delete remove cancel erase wipe purge destroy drop clear empty discard revoke void terminate end stop kill detach "
    "disconnect unsubscribe unlink unassign uninstall release kick ban expire withdraw retract leave "
    "losche entferne storniere kundige beende supprime supprimez annule annulez retire retirez elimina borra cancela "
    "quita cancella rimuovi annulla apague exclua cancele remova"
)
_DETERMINERS: Final = word_set(
    "the a an my our your his her their its this that these those all every it them him up out"
)


@cached(mebibytes=4)
def wanted_effect(text: str) -> float:
    """Return ASKS, ORDERS or UNCLEAR for a request or a clause of one.

    >>> wanted_effect("How much credit is left?"), wanted_effect("Please cancel it"), wanted_effect("in the evening")
    (1.0, -1.0, 0.0)
    """
    found = [unaccented(word) for word in words(text)]
    start = 0
    while start < len(found) - 1 and found[start] in _POLITE and found[start] not in _QUESTIONS:
        start += 1
    if not found:
        return UNCLEAR
    first = found[start]
    following = found[start + 1] if start + 1 < len(found) else ""
    gets_rid = (first, following) == ("get", "rid")
    if first in _QUESTIONS or (first in _ASKING and not gets_rid):
        return ASKS
    # "Mute the call": an unknown word before a determiner is a verb too.
    before_determiner = following in _DETERMINERS and first not in STOP_WORDS
    if first in _ORDERING or gets_rid or before_determiner:
        return ORDERS
    return ASKS if text.rstrip().endswith(("?", "？", "؟")) else UNCLEAR


class Wanted(NamedTuple):
    """The effect that a clause of a request wants.

    Attributes:
        effect: ASKS, ORDERS or UNCLEAR.
        removal: 1.0 for an order to remove something, -1.0 for another order, otherwise 0.0.
    """

    effect: float
    removal: float


def wanted_by(query: str, clauses: Iterable[str]) -> list[Wanted]:
    """Return the effect that each clause of a request wants; an unclear clause wants what the one before it does."""
    before = wanted_effect(query)
    found = []
    for clause in clauses:
        before = wanted_effect(clause) or before
        removes = not _REMOVING.isdisjoint(unaccented(word) for word in words(clause))
        removal = 1.0 if removes else -1.0
        found.append(Wanted(before, removal if before == ORDERS else 0.0))
    return found


def effect_of(spec: ToolSpec) -> float:
    """Return 1.0 for a tool that reads, -1.0 for one that changes something, 0.0 if nothing says which.

    Where an API reads by POST, the verb in the name says that a tool reads. That decides a rank here, never a
    permission. Tools that declare nothing are left as they are: by the verbs of their names alone, 2 % fewer requests
    of a public catalogue of 2,490 tools found all their tools (``python -m benchmarks.tool_search``).
    """
    if spec.read_only is None or spec.streams:
        return 0.0
    if spec.read_only:
        return 1.0
    named = words(spec.name)
    ends = (named[0], named[-1]) if named else ()
    if any(word in READING for word in ends):
        return 1.0
    # APIs that know POST alone read by it too, so POST without a verb of change says nothing.
    changes = any(word in CHANGING for word in ends) or not spec.route.startswith("POST ")
    return -1.0 if changes else 0.0
