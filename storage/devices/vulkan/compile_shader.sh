#!/bin/sh
# Compiles copy_shader.comp to words of SPIR-V: compile_shader.sh [OUTPUT]. Needs glslang-tools.
set -eu
folder=$(dirname "$0")
output=${1:-$folder/copy_shader.inc}
code=$(mktemp)
trap 'rm -f "$code"' EXIT
glslangValidator --quiet -V --target-env vulkan1.2 -o "$code" "$folder/copy_shader.comp"
od -An -v -tx4 -w32 "$code" | sed 's/ \([0-9a-f]*\)/0x\1, /g; s/ $//' >"$output"
