"""Compiles the Cython extensions; everything else about the package is in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent

extensions = [
    Extension(
        ".".join(path.relative_to(ROOT).with_suffix("").parts),
        [str(path.relative_to(ROOT))],
        language="c++",
        # No fused multiply-adds: simulated times must be bit-equal to the plain-Python twin's.
        extra_compile_args=["-O2", "-std=c++17", "-ffp-contract=off"],
    )
    for path in sorted((ROOT / "coresched").rglob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",  # generated C++ stays out of the source tree and so out of sdist and wheel
        compiler_directives={"language_level": 3, "embedsignature": True},
    ),
    options={"build_ext": {"parallel": 2}},
)
