"""Prompts in many languages, and talks of them, drawn by a seed."""

from __future__ import annotations

import random
from typing import Any

SENTENCES = (
    "Which hotel is near the harbour?",
    "¿Dónde está la biblioteca más cercana?",
    "Où est passé l'œuf que j'avais caché ? Ça m'énerve…",
    "Größere Straßen führen über den Fluß — „ja“, sagte er.",
    "Жили-были старик со старухой у самого синего моря.",
    "Η γρήγορη αλεπού πηδά πάνω από το σκυλί.",
    "السلام عليكم، كيف حالك اليوم؟",
    "שלום עולם, מה שלומך?",
    "天気がいいから、散歩しましょう。",
    "今天的天气怎么样？我想去公园。",
    "오늘 날씨가 정말 좋네요.",
    "नमस्ते, आप कैसे हैं?",
    "สวัสดีครับ วันนี้อากาศดีมาก",
    "Trời hôm nay đẹp quá, phải không?",
    "İstanbul'da ılık bir akşam; ğüşöç.",
    "Zażółć gęślą jaźń.",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 thumb, 🇺🇳",
    "e\u0301 is not é, \u00a0 a hard blank, \u200b nothing, \ufeff a mark",
    '{"json": [1, 2, {"deep": null}]} and </tags> & \\backslashes\\',
    "def f(x):\n\treturn {k: v for k, v in x.items() if v is not None}\n",
    "1234567890 3.14159265 0x7f 1e-9 ½ ² ₃ Ⅳ",
    "   blanks   between    words\t\ttabs\r\nand\nlines\n\n\n",
    "<|system|> <|user|> <|end|> are words here, and {{braces}} {% too %}",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝕓𝕖𝕪𝕠𝕟𝕕 𝟙𝟞 bits: 𐍈 𒀀 🀄",
    "a",
    "ZWJ \u200d alone, variation \ufe0f alone, a tilde\u0303",
)
SYSTEMS = (
    "You answer in one sentence.",
    "Du antwortest knapp und auf Deutsch.",
    "あなたは親切な助手です。",
    "You are a pirate 🏴‍☠️. " * 5,
)
ANSWERS = ("Yes.", "No — wait, maybe 🤔", "Nein, gewiß nicht.", "はい、そうです。", "42")


def talk(chance: random.Random, turns: int) -> list[dict[str, Any]]:
    """Messages, the last of them a user's."""
    messages: list[dict[str, Any]] = []
    if chance.random() < 0.5:
        role = chance.choice(("system", "developer", "system"))
        messages.append({"role": role, "content": chance.choice(SYSTEMS)})
    for turn in range(turns):
        if turn:
            messages.append({"role": "assistant", "content": chance.choice(ANSWERS)})
        messages.append({"role": "user", "content": _content(chance)})
    return messages


def prompt(chance: random.Random) -> str:
    """Some sentences."""
    return " ".join(chance.sample(SENTENCES, chance.choice((1, 1, 2, 4))))


def _content(chance: random.Random) -> Any:
    if chance.random() < 0.2:
        return [{"type": "text", "text": prompt(chance)} for _ in range(chance.choice((1, 2, 3)))]
    return prompt(chance)
