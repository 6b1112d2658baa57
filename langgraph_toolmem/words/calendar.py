"""The names of the months and weekdays in sixteen languages: the one table of them.

Made from Unicode's CLDR by Babel 2.18 and checked in: Babel, which has the same names, is 30 MB on disk
(all of CLDR), 60 ms of import and 5 ms for each language, for names that have not changed for decades. These tables are
4 KB, and reading them takes 2 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from langgraph_toolmem.words.letters import unaccented

_MONTHS: Final = {
    "en": "january/jan february/feb march/mar april/apr may june/jun july/jul august/aug september/sep/sept "
    "october/oct november/nov december/dec",
    "de": "januar/jan februar/feb märz/mär april/apr mai juni/jun juli/jul august/aug september/sep/sept "
    "oktober/okt november/nov dezember/dez",
    "fr": "janvier/janv février/févr mars avril/avr mai juin juillet/juil août septembre/sept octobre/oct "
    "novembre/nov décembre/déc",
    "es": "enero/ene febrero/feb marzo/mar abril/abr mayo/may junio/jun julio/jul agosto septiembre/sept "
    "octubre/oct noviembre/nov diciembre/dic",
    "it": "gennaio febbraio/feb marzo/mar aprile/apr maggio giugno/giu luglio agosto settembre ottobre/ott "
    "novembre/nov dicembre/dic",
    "pt": "janeiro/jan fevereiro/fev março/mar abril/abr maio/mai junho/jun julho/jul agosto setembro outubro "
    "novembro/nov dezembro/dez",
    "nl": "januari/jan februari/feb maart/mrt april/apr mei juni/jun juli/jul augustus/aug september/sep "
    "oktober/okt november/nov december/dec",
    "sv": "januari/jan februari/feb mars april/apr maj juni juli augusti/aug september/sep oktober/okt "
    "november/nov december/dec",
    "pl": "styczeń/stycznia/sty luty/lutego/lut marzec/marca/mar kwiecień/kwietnia/kwi maj/maja "
    "czerwiec/czerwca/cze lipiec/lipca sierpień/sierpnia wrzesień/września/wrz "
    "październik/października/paź listopad/listopada/lis grudzień/grudnia/gru",
    "tr": "ocak/oca şubat/şub mart/mar nisan/nis mayıs/may haziran/haz temmuz ağustos/ağu eylül/eyl ekim/eki "
    "kasım/kas aralık",
    "ru": "январь/января/янв февраль/февраля/февр март/марта/мар апрель/апреля/апр май/мая июнь/июня/июн "
    "июль/июля/июл август/августа/авг сентябрь/сентября/сент октябрь/октября/окт ноябрь/ноября/нояб "
    "декабрь/декабря/дек",
    "ar": "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
    "hi": "जनवरी/जन फ़रवरी/फ़र मार्च अप्रैल मई जून जुलाई/जुल अगस्त/अग सितंबर/सित अक्टूबर/अक्टू नवंबर/नव दिसंबर/दिस",
    "ja": "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
    "zh": "一月/1月 二月/2月 三月/3月 四月/4月 五月/5月 六月/6月 七月/7月 八月/8月 九月/9月 十月/10月 "
    "十一月/11月 十二月/12月",
    "ko": "1월 2월 3월 4월 5월 6월 7월 8월 9월 10월 11월 12월",
}  # fmt: skip
_WEEKDAYS: Final = {
    "en": "monday tuesday wednesday thursday friday saturday sunday",
    "de": "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "pt": "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "sv": "måndag tisdag onsdag torsdag fredag lördag söndag",
    "pl": "poniedziałek wtorek środa czwartek piątek sobota niedziela",
    "tr": "pazartesi salı çarşamba perşembe cuma cumartesi pazar",
    "ru": "понедельник вторник среда четверг пятница суббота воскресенье",
    "ar": "الاثنين الثلاثاء الأربعاء الخميس الجمعة السبت الأحد",
    "hi": "सोमवार मंगलवार बुधवार गुरुवार शुक्रवार शनिवार रविवार",
    "ja": "月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日",
    "zh": "星期一/周一 星期二/周二 星期三/周三 星期四/周四 星期五/周五 星期六/周六 星期日/周日",
    "ko": "월요일 화요일 수요일 목요일 금요일 토요일 일요일",
}  # fmt: skip


def _numbers(languages: Mapping[str, str], first: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in languages.values():
        for number, names in enumerate(text.split(), start=first):
            for name in names.split("/"):
                # Turkish KASIM is "kasim" in lower case, not the "kasım" it came from
                found |= dict.fromkeys((name, unaccented(name), name.upper().lower()), number)
    return found


MONTHS: Final = _numbers(_MONTHS, 1)
"""Number of a month, 1 to 12, by its name or abbreviation in lower case, with its accents or without."""
WEEKDAYS: Final = _numbers(_WEEKDAYS, 0)
"""Number of a weekday, 0 (Monday) to 6, by its name in lower case."""


def one_of(names: Iterable[str]) -> str:
    """A regular expression for the longest of some names that stands at a place, quick however many there are.

    Small letters stand for capitals too.

    >>> one_of(["may", "march", "mar"])
    '[mM][aA](?:[rR](?:[cC][hH])?|[yY])'
    """
    tails: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        tails.setdefault(name[:1], []).append(name[1:])
    ends = tails.pop("", None) is not None
    parts = [_both(first) + one_of(rest) for first, rest in tails.items()]
    if ends:
        return f"(?:{'|'.join(parts)})?" if parts else ""
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _both(letter: str) -> str:
    return f"[{letter}{letter.upper()}]" if letter.islower() and len(letter.upper()) == 1 else re.escape(letter)


MONTH: Final = one_of(MONTHS)
WEEKDAY: Final = one_of(WEEKDAYS)
"""Regular expressions for any of the names; to be used without regard to case."""
