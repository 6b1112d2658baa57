"""Words that ask for nothing: greetings, thanks, yes and no. A request that says no more needs no tool.

A catalogue is searched relative to its best tool, and among thousands of tools there is one for any word: "thanks"
would find a thank-you card. English, and a few words of other European languages.
"""

from __future__ import annotations

import re
from typing import Final

from langgraph_toolmem.words.split import words

_PHRASES: Final = re.compile(
    r"\b(?:(?:good|nice|great|happy|lovely|wonderful|enjoy|rest of)(?: (?:your|the))? (?:day|week|time|rest)"
    r"|(?:one|just a|a|wait a) (?:second|minute|min|sec)|go ahead|go on|go for it|carry on|keep going"
    r"|hold on|hang on|hear from you|meet you|talk to you|take care|change[d]? my mind|all set"
    r"|(?:all|that's it|enough) for (?:now|today)|for your (?:time|support|patience)|quick (?:answer|reply)"
    r"|you (?:doing )?today|good job|great news|good news|like a plan|no way|in advance|by the way|of course"
    r"|buenos d[ií]as|buon giorno|guten tag|auf wiedersehen|au revoir|bonne (?:journ[ée]e|nuit)|d'accord|de nada)\b",
    re.IGNORECASE,
)
"""Together they say nothing, though each word may by itself."""
_WORDS: Final = frozenset(
    words("""
    absolutely afternoon again agree agreed ah aha alright amazing answer anyone anything anyway apologies
    appreciate appreciated assistant away awesome back bit brilliant bye certainly cheers continue cool correct
    definitely doing done else enjoy enough even evening everyone everything exactly excellent excuse fantastic
    feel fine friend friends funny glad goes going good goodbye got great greetings guess guys haha hahaha happy
    hello help helped helpful helping helps here hey hi hiya hm hmm hope hoping howdy huh idea indeed job k keep
    kind kindly knew know lol look looked looks lot lots love lovely make makes many matter maybe mean means
    meant mhm mind moment more morning much nah never nevermind nice night no nobody nope nothing oh ok okay one
    oops or other ouch pardon patience perfect perhaps please point problem problems proceed question questions
    quite ready really right said same say saying see seem seemed seems sense sir so something sorry sound
    sounds splendid still stupid sucks super sure talk team thank thanks there thing things think thinking
    thought thx tomorrow too trouble trust try ty ugh understand understood very wait weekend welcome well
    wonderful word work worked working works worries worry wow wrong yay yea yeah yep yes yet yo yup
    abend adiós alles beaucoup bitte bonjour bonsoir ciao dank danke doei för gracias grazie gute guten hallo
    hoi hola ja klar merci mille molte morgen muchas nacht nein non não obrigada obrigado olá oui prego salut
    schön si sim sì sí tack tak tschüss vale viele vielen
    """)
)
_JOINED: Final = re.compile(r"(?<=\w)(?:n't|'\w+)\b")
"""What an apostrophe joins to a word: "that's" is "that", "don't" is "do"."""
_FEW: Final = 200
"""Characters from which a text is no small talk, whatever its words."""


def is_small_talk(text: str, usual: frozenset[str]) -> bool:
    """Whether a text asks for nothing.

    Args:
        usual: further words that tell nothing.

    >>> is_small_talk("Good morning, how are you?", frozenset({"how", "are", "you"}))
    True
    >>> is_small_talk("Good morning, book me a room.", frozenset())
    False
    """
    if len(text) > _FEW:
        return False
    left = words(_JOINED.sub("", _PHRASES.sub(" ", text.replace("’", "'"))))
    return all(word in _WORDS or word in usual for word in left)
