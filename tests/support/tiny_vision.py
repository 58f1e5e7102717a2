"""Run by an interpreter with transformers: a LLaVA model with random weights behind a server.

Its tokenizer is that of the shipped model, with one more token that stands for an image. The
server streams what the model generates greedily, with its counts, as OpenAI's API does.
"""

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

IMAGE = "<image>"
# Pixels of an image and of a patch, a side: an image is (56 / 14)² tokens.
SIDE, PATCH = 56, 14
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] in ('image', 'image_url') %}"
    "<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}\n"
    "{% endfor %}assistant: "
)
IMAGES = {
    "image_processor_type": "CLIPImageProcessor", "do_resize": True, "do_center_crop": True,
    "size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE},
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
}  # fmt: skip
PROCESSOR = {
    "processor_class": "LlavaProcessor", "image_token": IMAGE, "patch_size": PATCH,
    "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1,
}  # fmt: skip


def make(shipped: Path, folder: Path) -> None:
    """Write the whole checkpoint into the folder."""
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    folder.mkdir(parents=True)
    tokenizer = json.loads((shipped / "tokenizer.json").read_text())
    image = 1 + max(
        max(tokenizer["model"]["vocab"].values()),
        *(each["id"] for each in tokenizer["added_tokens"]),
    )
    kinds = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": image, "content": IMAGE, "special": True, **kinds})
    settings = json.loads((shipped / "tokenizer_config.json").read_text())
    settings |= {"chat_template": TEMPLATE, "extra_special_tokens": {"image_token": IMAGE}}
    files = {
        "tokenizer": tokenizer, "tokenizer_config": settings, "preprocessor_config": IMAGES,
        "processor_config": PROCESSOR,
    }  # fmt: skip
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    text = {
        "model_type": "llama", "vocab_size": image + 1, "num_attention_heads": 4,
        "num_key_value_heads": 4, "max_position_embeddings": 4096, "bos_token_id": 1,
        "eos_token_id": 5, **small,
    }  # fmt: skip
    vision = {
        "model_type": "clip_vision_model", "num_attention_heads": 4, "image_size": SIDE,
        "patch_size": PATCH, "projection_dim": 64, **small,
    }  # fmt: skip
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_index=image)
    torch.manual_seed(7)
    LlavaForConditionalGeneration(config).save_pretrained(folder)


class Seeing:
    """The loaded model."""

    def __init__(self, folder: Path) -> None:
        import transformers

        # Their types are wider than what is used of them.
        library: Any = transformers
        self._processor = library.AutoProcessor.from_pretrained(folder, backend="pil")
        self._model = library.LlavaForConditionalGeneration.from_pretrained(folder)

    def answer(self, body: dict[str, Any]) -> tuple[str, int, int]:
        """Text of a chat's answer, tokens of its prompt, tokens of the answer."""
        from PIL import Image

        messages = body.get("messages") or [{"role": "user", "content": body["prompt"]}]
        images = [
            Image.open(BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2])))
            for message in messages
            for part in message["content"]
            if not isinstance(part, str) and part["type"] == "image_url"
        ]
        text = self._processor.tokenizer.apply_chat_template(messages, tokenize=False)
        inputs = self._processor(text=text, images=images or None, return_tensors="pt")
        made = self._model.generate(
            **inputs, max_new_tokens=body["max_tokens"], do_sample=False, eos_token_id=None
        )
        size = inputs["input_ids"].shape[1]
        told = made[0, size:]
        return self._processor.tokenizer.decode(told, skip_special_tokens=False), size, len(told)


def serve(folder: Path) -> None:
    """Until it is ended; the port is the one line that it prints."""
    seeing = Seeing(folder)

    class Chats(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            row = {"id": "vl", "max_model_len": 2048, "capabilities": ["vision"]}
            self._send("application/json", json.dumps({"data": [row]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text, prompt, completion = seeing.answer(body)
            usage = {"prompt_tokens": prompt, "completion_tokens": completion}
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": "length"}
            chunks = ({"choices": [choice]}, {"choices": [], "usage": usage})
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
            self._send("text/event-stream", "".join([*events, "data: [DONE]\n\n"]))

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    server = HTTPServer(("127.0.0.1", 0), Chats)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
    serve(Path(sys.argv[2]))
