"""Compiles the Cython extensions and generates the gRPC stubs; everything else is in pyproject.toml.

In a checkout, `pip install -e .` or `python setup.py build_ext --inplace` does both in place.
"""

import os
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from Cython.Build import cythonize
from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PROTO = ROOT / "proto"

# What comes later prevails, and the CXXFLAGS of who builds it come before these.
OPTIMISATION = [] if "CXXFLAGS" in os.environ else ["-O2"]

extensions = [
    Extension(
        ".".join(path.relative_to(ROOT).with_suffix("").parts),
        [str(path.relative_to(ROOT))],
        language="c++",
        include_dirs=[str(ROOT / "coresched" / "core")],
        # No fused multiply-adds: simulated times must be bit-equal to the plain-Python twin's.
        extra_compile_args=[*OPTIMISATION, "-std=c++17", "-ffp-contract=off"],
    )
    for path in sorted((ROOT / "coresched").rglob("*.pyx"))
]


def source_folder(package):
    """Where the package of this name lies in the source tree."""
    return ROOT if (ROOT / package).is_dir() else ROOT / "adapters"


class BuildStubs(Command):
    """Generates *_pb2.py, *_pb2.pyi and *_pb2_grpc.py from proto/, in place or in build_lib.

    In place those of an adapter come into its package, below adapters/.
    """

    description = "generate the gRPC stubs"
    user_options: ClassVar = [("inplace", "i", "write into the source tree")]
    boolean_options: ClassVar = ["inplace"]

    def initialize_options(self):
        self.inplace = False
        self.editable_mode = False  # set by setuptools for `pip install -e`
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self):
        try:
            from grpc_tools import protoc
        except ImportError:
            raise SystemExit(
                "setup.py: grpcio-tools must be installed to generate the gRPC stubs; "
                "pip install what [build-system] in pyproject.toml requires"
            ) from None
        inplace = self.inplace or self.editable_mode
        for package in sorted(path for path in PROTO.iterdir() if path.is_dir()):
            target = source_folder(package.name) if inplace else Path(self.build_lib)
            target.mkdir(parents=True, exist_ok=True)
            code = protoc.main(
                [
                    "protoc",
                    f"--proto_path={PROTO}",
                    f"--proto_path={files('grpc_tools') / '_proto'}",  # google.protobuf
                    f"--python_out={target}",
                    f"--pyi_out={target}",
                    f"--grpc_python_out={target}",
                    *map(str, sorted(package.rglob("*.proto"))),
                ]
            )
            if code != 0:
                raise SystemExit(f"setup.py: protoc failed with exit code {code}")

    def get_source_files(self):
        return [str(path.relative_to(ROOT)) for path in sorted(PROTO.rglob("*.proto"))]

    def get_output_mapping(self):
        return {
            str(Path(self.build_lib, name)): str((source_folder(stem.parts[0]) / name).relative_to(ROOT))
            for path in sorted(PROTO.rglob("*.proto"))
            for stem in [path.relative_to(PROTO).with_suffix("")]
            for name in (f"{stem}_pb2.py", f"{stem}_pb2.pyi", f"{stem}_pb2_grpc.py")
        }

    def get_outputs(self):
        mapping = self.get_output_mapping()
        return list(mapping.values() if self.editable_mode else mapping)


class Build(build):
    # After build_py, so that stubs lying in the source tree from an earlier build are overwritten.
    sub_commands: ClassVar = [*build.sub_commands, ("build_stubs", None)]


class BuildExtensions(build_ext):
    def run(self):
        super().run()
        if self.inplace and not self.editable_mode:
            self.distribution.get_command_obj("build_stubs").inplace = True
            self.run_command("build_stubs")


setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",  # generated C++ stays out of the source tree and so out of sdist and wheel
        compiler_directives={"language_level": 3, "embedsignature": True},
    ),
    options={"build_ext": {"parallel": 2}},
    cmdclass={"build": Build, "build_ext": BuildExtensions, "build_stubs": BuildStubs},
)
