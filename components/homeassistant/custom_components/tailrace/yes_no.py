"""Whether an utterance says yes or no, in the language of its speaker. Pure.

What is not plainly one of the two is neither: an approval is never guessed.
"""

from __future__ import annotations

import re
import unicodedata

_YES = {
    "cs": "ano|jo|jasně|souhlasím|povoluji",
    "da": "ja|jo|jep|selvfølgelig|gerne|gør det",
    "de": "ja|jawohl|jep|jo|klar|gerne|sicher|natürlich|genehmigt|erlaubt|einverstanden|mach das|mach es|tu das|tu es",
    "en": "yes|yeah|yep|yup|sure|ok|okay|approve|approved|allow|allowed|confirm|confirmed|go ahead|do it|of course",
    "es": "sí|si|claro|vale|de acuerdo|adelante|hazlo|por supuesto|confirmo",
    "fi": "kyllä|joo|juu|selvä|tee se",
    "fr": "oui|ouais|d'accord|vas y|allez y|bien sûr|fais le|faites le|confirme",
    "it": "sì|si|certo|va bene|d'accordo|procedi|fallo|confermo",
    "nb": "ja|jo|jepp|selvfølgelig|gjerne|gjør det",
    "nl": "ja|jawel|zeker|prima|oké|akkoord|doe maar|doe het",
    "pl": "tak|jasne|pewnie|dobrze|zgoda|zrób to",
    "pt": "sim|claro|pode|ok|de acordo|faça|com certeza|confirmo",
    "sv": "ja|jo|japp|visst|gärna|gör det",
}
_NO = {
    "cs": "ne|nikdy|zruš|zakazuji",
    "da": "nej|nej tak|stop|afbryd|lad være",
    "de": "nein|nee|nö|nein danke|auf keinen fall|stopp|stop|abbrechen|abbruch|lass das|lass es|nicht|"
    "vergiss es|jetzt nicht|nicht jetzt|lieber nicht",
    "en": "no|nope|nah|no thanks|never|deny|denied|stop|cancel|don't|do not|don't do it|never mind|nevermind|"
    "forget it|forget that|leave it|not now|cancel that|no way",
    "es": "no|no gracias|nunca|para|cancela|cancelar",
    "fi": "ei|ei kiitos|älä|peruuta|seis",
    "fr": "non|non merci|jamais|arrête|arrêtez|annule|annulez|stop",
    "it": "no|no grazie|mai|ferma|annulla|stop",
    "nb": "nei|nei takk|stopp|avbryt|la være",
    "nl": "nee|nee dank je|nooit|stop|annuleer|niet doen",
    "pl": "nie|nie dziękuję|nigdy|stop|anuluj",
    "pt": "não|nao|não obrigado|nunca|pare|cancela|cancelar",
    "sv": "nej|nej tack|stopp|avbryt|låt bli",
}
# said beside a yes, a no or a command without changing it
FILLERS = {
    "cs": "prosím",
    "da": "tak|venligst",
    "de": "bitte|danke|doch",
    "en": "please|thanks|thank you",
    "es": "por favor|gracias",
    "fi": "kiitos",
    "fr": "merci|s'il te plaît|s'il vous plaît",
    "it": "grazie|per favore",
    "nb": "takk|vennligst",
    "nl": "graag|alsjeblieft|bedankt",
    "pl": "proszę|dziękuję",
    "pt": "por favor|obrigado|obrigada",
    "sv": "tack|snälla",
}
FALLBACK = "en"
_ALIASES = {"no": "nb", "nn": "nb"}


def said_yes(text: str, language: str) -> bool | None:
    """True for yes, False for no, None where the utterance is neither or both. A phrase of the speaker's language
    counts, or an English one; the whole utterance must consist of such phrases."""
    words = words_of(text)
    for spoken in dict.fromkeys((languages_of(language)[-1], FALLBACK)):
        if spoken in _YES and (meant := _meant(words, spoken)) is not None:
            return meant
    return None


def languages_of(tag: str) -> list[str]:
    """The languages to look for, the exact one first: "de-AT" as such, then "de"."""
    base = tag.replace("_", "-").partition("-")[0].lower()
    return list(dict.fromkeys((tag, _ALIASES.get(base, base))))


def without_fillers(words: list[str], language: str) -> list[str]:
    """The words without a "please" before or after them."""
    fillers, changed = phrases(FILLERS, language), True
    while changed:
        changed = False
        for length in range(min(4, len(words)), 0, -1):
            if " ".join(words[:length]) in fillers:
                words, changed = words[length:], True
            elif " ".join(words[-length:]) in fillers:
                words, changed = words[:-length], True
    return words


def _meant(words: list[str], language: str) -> bool | None:
    yes, no, fillers = (phrases(table, language) for table in (_YES, _NO, FILLERS))
    found: set[bool] = set()
    at = 0
    while at < len(words):
        for length in range(min(4, len(words) - at), 0, -1):
            phrase = " ".join(words[at : at + length])
            if phrase in no:  # first: "no thanks" is one phrase
                found.add(False)
            elif phrase in yes:
                found.add(True)
            elif phrase not in fillers:
                continue
            at += length
            break
        else:
            return None
    return found.pop() if len(found) == 1 else None


def phrases(table: dict[str, str], language: str) -> frozenset[str]:
    return frozenset(" ".join(words_of(phrase)) for phrase in table[language].split("|"))


def words_of(text: str) -> list[str]:
    composed = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    return re.findall(r"[\w']+", composed)
