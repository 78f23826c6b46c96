"""What people call Q, K and V: it settles only what numbers leave open."""

from __future__ import annotations

import re

IS_Q = re.compile(
    r"(x|w|our|self)?_*w?_*(qs?|qh|qq|q[_.0-9].*|quer.*|anfrag\w*|requete\w*|consult\w*|.*_(q|quer.*))_?[0-9h]?",
    re.IGNORECASE,
)
IS_K = re.compile(
    r"(x|w|our|self)?_*w?_*(ks?|kh|kk|k[_.0-9].*|keys?.*|schl\w*|cles?|clav\w*|llav\w*|.*_(k|keys?))_?[0-9h]?",
    re.IGNORECASE,
)
IS_V = re.compile(
    r"(x|w|our|self)?_*w?_*(vs?|vh|vv|v[_.0-9].*|val.*|wert\w*|.*_(v|val.*))_?[0-9h]?", re.IGNORECASE
)
IS_SIZE = re.compile(r"(d|n|dim|num|len|head|size)_?.*", re.IGNORECASE)
NAMES_OF = {"Q": IS_Q, "K": IS_K, "V": IS_V}


def is_q(word: str) -> bool:
    if not IS_Q.fullmatch(word):
        return False
    return not IS_SIZE.fullmatch(word)


def is_k(word: str) -> bool:
    if not IS_K.fullmatch(word):
        return False
    return not IS_SIZE.fullmatch(word)


def is_called(name: str, word: str) -> bool:
    """True if a word of the program means Q, K or V."""
    if not NAMES_OF[name].fullmatch(word):
        return False
    return not IS_SIZE.fullmatch(word)
