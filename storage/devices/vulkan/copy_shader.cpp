#include "storage/devices/vulkan/copy_shader.hpp"

#include <array>
#include <cstddef>

#include "storage/devices/gpu/copy_unit.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr auto code = std::to_array<std::uint32_t>({
#include "storage/devices/vulkan/copy_shader.inc"
});

// As the shader declares it.
static_assert(sizeof(CopyUnit) == 24 && offsetof(CopyUnit, to) == 8 &&
              offsetof(CopyUnit, length) == 16);

}  // namespace

CopyShader::CopyShader(const LogicalDevice& device) : device_(device) {
    const VkResult result = create();
    if (result == VK_SUCCESS) return;
    const DeviceFunctions& call = device_.functions();
    call.DestroyPipelineLayout(device_.get(), layout_, nullptr);
    require(result, "the driver cannot compile the shader");
}

CopyShader::~CopyShader() {
    const DeviceFunctions& call = device_.functions();
    call.DestroyPipeline(device_.get(), pipeline_, nullptr);
    call.DestroyPipelineLayout(device_.get(), layout_, nullptr);
}

VkResult CopyShader::create() {
    const DeviceFunctions& call = device_.functions();
    const VkPushConstantRange arguments{
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .offset = 0, .size = sizeof(VkDeviceAddress)};
    VkPipelineLayoutCreateInfo layout{};
    layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &arguments;
    VkResult result = call.CreatePipelineLayout(device_.get(), &layout, nullptr, &layout_);
    if (result != VK_SUCCESS) return result;
    VkShaderModuleCreateInfo module{};
    module.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    module.codeSize = sizeof(code);
    module.pCode = code.data();
    VkComputePipelineCreateInfo pipeline{};
    pipeline.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    pipeline.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    pipeline.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    pipeline.stage.pName = "main";
    pipeline.layout = layout_;
    result = call.CreateShaderModule(device_.get(), &module, nullptr, &pipeline.stage.module);
    if (result != VK_SUCCESS) return result;
    result = call.CreateComputePipelines(device_.get(), VK_NULL_HANDLE, 1, &pipeline, nullptr,
                                         &pipeline_);
    call.DestroyShaderModule(device_.get(), pipeline.stage.module, nullptr);
    return result;
}

void CopyShader::record(VkCommandBuffer commands, VkDeviceAddress units,
                        std::uint32_t count) const {
    const DeviceFunctions& call = device_.functions();
    call.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline_);
    call.CmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(units), &units);
    call.CmdDispatch(commands, count, 1, 1);
}

}  // namespace gpunbd::storage::vulkan
