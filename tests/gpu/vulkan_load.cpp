// A program that takes GPU memory by Vulkan beside a server, as games do.
//
// usage: vulkan_load take ORDINAL MIB BLOCKS
// Allocates blocks of memory of the device's own, and prints the duration of each allocation in
// milliseconds, as gpu_load does. Holds them until standard input ends. ORDINAL counts the GPUs of
// Vulkan, without CPU implementations.
#include <vulkan/vulkan.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void check(VkResult result, const char* what) {
    if (result == VK_SUCCESS) return;
    std::fprintf(stderr, "vulkan_load: %s: %d\n", what, static_cast<int>(result));
    std::exit(1);
}

VkPhysicalDevice find_gpu(VkInstance instance, int ordinal) {
    std::uint32_t count = 0;
    check(vkEnumeratePhysicalDevices(instance, &count, nullptr), "the devices");
    std::vector<VkPhysicalDevice> all(count);
    check(vkEnumeratePhysicalDevices(instance, &count, all.data()), "the devices");
    for (VkPhysicalDevice each : all) {
        VkPhysicalDeviceProperties properties{};
        vkGetPhysicalDeviceProperties(each, &properties);
        if (properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) continue;
        if (ordinal-- == 0) return each;
    }
    std::fprintf(stderr, "vulkan_load: there is no such GPU\n");
    std::exit(1);
}

std::uint32_t device_local_type(VkPhysicalDevice gpu) {
    VkPhysicalDeviceMemoryProperties memory{};
    vkGetPhysicalDeviceMemoryProperties(gpu, &memory);
    for (std::uint32_t type = 0; type != memory.memoryTypeCount; ++type) {
        if (memory.memoryTypes[type].propertyFlags == VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) {
            return type;
        }
    }
    std::fprintf(stderr, "vulkan_load: no memory is the device's own\n");
    std::exit(1);
}

VkDevice open(VkPhysicalDevice gpu) {
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    VkDevice device = nullptr;
    check(vkCreateDevice(gpu, &info, nullptr, &device), "the device");
    return device;
}

int take(VkPhysicalDevice gpu, std::uint64_t mib, int blocks) {
    const VkDevice device = open(gpu);
    VkMemoryAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    info.allocationSize = mib << 20;
    info.memoryTypeIndex = device_local_type(gpu);
    for (int i = 0; i != blocks; ++i) {
        VkDeviceMemory block = nullptr;
        const auto begin = std::chrono::steady_clock::now();
        const VkResult result = vkAllocateMemory(device, &info, nullptr, &block);
        const std::chrono::duration<double, std::milli> taken =
            std::chrono::steady_clock::now() - begin;
        std::printf("%d %s ms %.2f\n", i, result == VK_SUCCESS ? "ok" : "FAILED", taken.count());
        std::fflush(stdout);
        if (result != VK_SUCCESS) return 1;
    }
    std::printf("ready\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5 || std::strcmp(argv[1], "take") != 0) {
        std::fprintf(stderr, "usage: vulkan_load take ORDINAL MIB BLOCKS\n");
        return 2;
    }
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    VkInstance instance = nullptr;
    check(vkCreateInstance(&info, nullptr, &instance), "an instance");
    return take(find_gpu(instance, std::atoi(argv[2])), std::strtoull(argv[3], nullptr, 10),
                std::atoi(argv[4]));
}
