// The shader, run alone on a queue, for the watch that looks for other programs on the GPU.
#pragma once

#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/copy_shader.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"
#include "storage/devices/vulkan/submission_ring.hpp"

namespace gpunbd::storage::vulkan {

// For one thread.
class ShaderProbe {
 public:
    // All references outlive this object. Throws std::runtime_error.
    ShaderProbe(VulkanState& state, const CopyShader& shader, Queue& queue);

    // False: it cannot be launched.
    bool launch();
    bool ended();
    // Launches it, waits, and checks what it has copied. Throws Unavailable if it does not work.
    void check();

 private:
    StagingMemory staging_;
    CommandBuffers buffers_;
    SubmissionRing ring_;  // destroyed first
};

}  // namespace gpunbd::storage::vulkan
