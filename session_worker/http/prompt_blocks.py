"""What clients send as a prompt, as blocks of the Messages API; refused here, not by the API."""

from __future__ import annotations

from session_worker import images
from session_worker.blocks import Block

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def image_block(media_type: str, data: str) -> Block:
    """An image from its base64. Raises ValueError for what the API would refuse."""
    if media_type not in IMAGE_TYPES:
        known = ", ".join(sorted(IMAGE_TYPES))
        raise ValueError(f"images are {known}, not {media_type[:80]}")
    source = {"type": "base64", "media_type": media_type, "data": data}
    block = images.sound({"type": "image", "source": source})
    if isinstance(block, str):
        raise ValueError(f"the image is of no use: {block}")
    return block
