// Loads Vulkan at run time and makes an instance. Shared by all users of Vulkan.
#pragma once

#include <fmt/format.h>
#include <vulkan/vulkan.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpunbd::storage::vulkan {

using Uuid = std::array<unsigned char, VK_UUID_SIZE>;

// Vulkan or a part of it is not available; the text says what. Public functions catch it and return
// the text.
struct Unavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The name of a result: "VK_ERROR_DEVICE_LOST".
std::string to_text(VkResult result);
// Throws Unavailable with `what` and the error, unless the result is VK_SUCCESS.
void require(VkResult result, const char* what);

class Loader {
 public:
    // Opens the loader of the system. Throws Unavailable.
    Loader();
    // For tests: uses this function instead.
    explicit Loader(PFN_vkGetInstanceProcAddr entry) : get_instance_proc_addr_(entry) {}

    template <class Function>
    Function find(VkInstance instance, const char* name) const {
        const auto function = reinterpret_cast<Function>(get_instance_proc_addr_(instance, name));
        if (function == nullptr) throw Unavailable(fmt::format("Vulkan lacks {}", name));
        return function;
    }

 private:
    // The library is never unloaded: some drivers that it has loaded crash when they are unloaded.
    PFN_vkGetInstanceProcAddr get_instance_proc_addr_ = nullptr;
};

class Instance {
 public:
    explicit Instance(const Loader& loader = Loader());  // throws Unavailable
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance() { destroy_(instance_, nullptr); }

    template <class Function>
    Function find(const char* name) const {
        return loader_.find<Function>(instance_, name);
    }
    // In the driver's order. Throws Unavailable.
    std::vector<VkPhysicalDevice> physical_devices() const;
    VkPhysicalDevice find_physical_device(const Uuid& uuid) const;  // throws Unavailable
    std::vector<std::string> extensions(VkPhysicalDevice device) const;
    bool has_extension(VkPhysicalDevice device, const char* name) const;

 private:
    Loader loader_;
    VkInstance instance_ = nullptr;
    PFN_vkDestroyInstance destroy_ = nullptr;
};

}  // namespace gpunbd::storage::vulkan
