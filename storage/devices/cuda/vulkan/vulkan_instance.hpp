// Loads Vulkan at run time and makes an instance. Only for this folder.
#pragma once

#include <vulkan/vulkan.h>

#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace gpunbd::storage::vulkan {

// Vulkan or a part of it is not available; the text says what. Public functions catch it and return
// the text.
struct Unavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void require(VkResult result, const char* what);

class Loader {
 public:
    Loader();
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    // Does not unload the library: some drivers that it has loaded crash when they are unloaded.
    ~Loader() = default;

    template <class Function>
    Function find(VkInstance instance, const char* name) const {
        const auto function = reinterpret_cast<Function>(get_instance_proc_addr_(instance, name));
        if (function == nullptr) throw Unavailable(fmt::format("Vulkan lacks {}", name));
        return function;
    }

 private:
    PFN_vkGetInstanceProcAddr get_instance_proc_addr_ = nullptr;
};

class Instance {
 public:
    Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance() { destroy_(instance_, nullptr); }

    template <class Function>
    Function find(const char* name) const {
        return loader_.find<Function>(instance_, name);
    }
    VkPhysicalDevice find_physical_device(
        const std::array<unsigned char, VK_UUID_SIZE>& uuid) const;
    bool has_extension(VkPhysicalDevice device, const char* name) const;

 private:
    Loader loader_;
    VkInstance instance_ = nullptr;
    PFN_vkDestroyInstance destroy_ = nullptr;
};

}  // namespace gpunbd::storage::vulkan
