"""What trainers use of torch and tensordict on the way from a row to a batch, by numpy: torch itself is 800 MB.

`standing_in` has `import torch` find it while it lasts.
"""

import contextlib
import sys
import types

import numpy

import frameworks

DTYPES = {"int16": "int16", "int32": "int32", "int64": "int64", "long": "int64", "float32": "float32", "float": "float32"}
# numpy has none; what is compared has few digits.
DTYPES |= {"bfloat16": "float32", "float16": "float16", "bool": "bool", "uint8": "uint8"}


class Tensor(numpy.ndarray):
    """An array with the few names that torch gives to the same things."""

    def __new__(cls, values, dtype=None, device=None):
        del device
        made = numpy.asarray(values, dtype)
        # torch's numbers with a point have 32 bits unless it is told otherwise.
        if dtype is None and made.dtype == numpy.float64:
            made = made.astype("float32")
        return made.view(cls)

    def to(self, *_, **__):
        return self

    def size(self, dim=None):  # noqa: A003 (torch's name)
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        return int(numpy.prod(self.shape))

    def float(self):  # noqa: A003
        return self.astype("float32")

    def contiguous(self):
        return self

    def unsqueeze(self, dim):
        return numpy.expand_dims(self, dim)

    def new_zeros(self, shape):
        return numpy.zeros(shape, self.dtype).view(Tensor)


def of_dtype(name):
    return lambda values: Tensor(values, DTYPES[name])


def like(fill):
    return lambda values, dtype=None, device=None: Tensor(numpy.full(numpy.shape(values), fill, dtype or values.dtype))


class Batch(dict):
    """A TensorDict: arrays by their names."""

    def __init__(self, values, batch_size=None, **_):
        super().__init__(values)
        self.batch_size = batch_size
        assert all(len(value) == batch_size for value in values.values())


def torch():
    # Names that are only mentioned on the way are those of a library that is not installed.
    module = frameworks.Library("torch")
    module.__path__ = []
    vars(module).update({name: numpy.dtype(dtype) for name, dtype in DTYPES.items()})
    module.Tensor = Tensor
    module.tensor = Tensor
    module.LongTensor, module.BoolTensor = of_dtype("int64"), of_dtype("bool")
    module.zeros_like, module.ones_like = like(0), like(1)
    module.zeros = lambda *shape, dtype="float32", device=None: Tensor(numpy.zeros(shape, dtype))
    module.cat = lambda tensors, dim=0: numpy.concatenate(tensors, axis=dim)
    module.cumsum = lambda values, dim: numpy.cumsum(values, axis=dim)
    module.clamp = lambda values, min: numpy.maximum(values, min)  # noqa: A002
    module.argmax = lambda values, dim: numpy.argmax(values, axis=dim)
    module.arange = lambda *values: Tensor(numpy.arange(*values))
    return module


@contextlib.contextmanager
def standing_in():
    tensordict = types.ModuleType("tensordict")
    tensordict.TensorDict = Batch
    modules = {"torch": torch(), "tensordict": tensordict}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield modules["torch"]
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
