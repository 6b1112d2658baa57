"""Words that negate, withdraw or postpone a request, in the languages with most speakers.

They matter only for words without a record: a word of earlier requests with the same call is accepted. Affixes are not
in the list, so Turkish and Korean requests that negate only by the verb's ending are not recognised.
"""

from __future__ import annotations

from typing import Final

from langgraph_toolmem.text.words import words


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
"""The words as `text.words.words` returns them."""
