"""Buffers: memory that is used again once nobody refers to it. Fresh pages cost more than filling them."""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np

Array = np.ndarray


class Buffers:
    """Arrays for one pass; when an array and all tensors made of it are gone, its memory serves the next.

    >>> buffers = Buffers()
    >>> first = buffers.new((2, 3), np.dtype(float))
    >>> place = first.ctypes.data
    >>> del first
    >>> buffers.new((3, 2), np.dtype(float)).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        self.free: deque[Array] = deque()  # appended to by whichever thread drops an array: deques are safe for that

    def new(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """An array that is not filled."""
        size = math.prod(shape) * dtype.itemsize
        memory = self._take(size)
        array = memory[:size].view(dtype).reshape(shape)
        weakref.finalize(array, self.free.append, memory).atexit = False
        return array

    def _take(self, size: int) -> Array:
        for _ in range(len(self.free)):
            try:
                memory = self.free.popleft()
            except IndexError:
                break
            if size <= len(memory) <= 2 * size:
                return memory
            self.free.append(memory)
        return np.empty(size, np.uint8)
