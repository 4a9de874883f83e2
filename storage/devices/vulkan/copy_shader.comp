// Gathers and scatters copies: one workgroup for each unit, like the kernel of CUDA devices.
// Compile it with compile_shader.sh after every change.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

layout(local_size_x = 256) in;

// CopyUnit of storage/devices/gpu/copy_unit.hpp. Addresses and sizes are multiples of 4 bytes.
struct Unit {
    uvec2 from;  // 0: zeroes
    uvec2 to;
    uint bytes;  // 0: nothing to do
    uint unused;
};

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Units { Unit at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer WordsOut { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Lines { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer LinesOut { uvec4 at[]; };

layout(push_constant) uniform Arguments { uvec2 units; };

void main() {
    const Unit unit = Units(units).at[gl_WorkGroupID.x];
    const bool zero = unit.from == uvec2(0);
    if (((unit.from.x | unit.to.x | unit.bytes) & 15) == 0) {
        for (uint i = gl_LocalInvocationID.x; i < unit.bytes / 16; i += gl_WorkGroupSize.x) {
            uvec4 value = uvec4(0);
            if (!zero) value = Lines(unit.from).at[i];
            LinesOut(unit.to).at[i] = value;
        }
    } else {
        for (uint i = gl_LocalInvocationID.x; i < unit.bytes / 4; i += gl_WorkGroupSize.x) {
            uint value = 0;
            if (!zero) value = Words(unit.from).at[i];
            WordsOut(unit.to).at[i] = value;
        }
    }
}
