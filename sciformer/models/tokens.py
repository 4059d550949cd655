"""What a model that reads tokens asks of them."""

import torch
from torch import Tensor

from sciformer.functional import InputError


def check_tokens(name: str, tokens: Tensor, vocab: int, *, longest: int, read: int = 0, look: bool = True) -> None:
    """Refuse tokens that a model cannot read.

    Args:
        name: what the tokens are, for the message.
        longest: how many tokens the model can look at.
        read: how many of them it has read before.
        look: also look at every token, for which a GPU would have to wait.

    Raises:
        ValueError: if they are not (B, length) integers, are empty or too long, or one is not in the vocabulary.
    """
    if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32) or tokens.shape[1] == 0:
        raise InputError(
            f"{name} must be (B, length) integers, int64 or int32, with a length of 1 or more, "
            f"got {tokens.dtype} of {tuple(tokens.shape)}"
        )
    if read + tokens.shape[1] > longest:
        raise InputError(f"the model can look at {longest} tokens, got {read + tokens.shape[1]} of a {name}")
    if look and len(tokens) and not torch.compiler.is_compiling():
        least, most = tokens.aminmax()
        if least < 0 or most >= vocab:
            strange = (least if least < 0 else most).item()
            raise InputError(f"{name} has token {strange}, and the model knows 0..{vocab - 1}")
