"""Common ground: few threads, so that small tensors are not slowed by handing work around."""

import torch

torch.set_num_threads(1)
