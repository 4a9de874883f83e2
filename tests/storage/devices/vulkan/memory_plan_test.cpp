#include "storage/devices/vulkan/physical_device.hpp"

#include "tests/test.hpp"

using namespace gpunbd::storage::vulkan;

namespace {

constexpr VkMemoryPropertyFlags vram = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags visible =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags in_cache = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr std::uint32_t all_types = ~std::uint32_t{0};

VkPhysicalDeviceMemoryProperties memory_of(std::initializer_list<VkMemoryHeap> heaps,
                                           std::initializer_list<VkMemoryType> types) {
    VkPhysicalDeviceMemoryProperties memory{};
    for (const VkMemoryHeap& heap : heaps) memory.memoryHeaps[memory.memoryHeapCount++] = heap;
    for (const VkMemoryType& type : types) memory.memoryTypes[memory.memoryTypeCount++] = type;
    return memory;
}

}  // namespace

TEST_CASE("Vulkan: the memory of a card is its largest local heap") {
    constexpr std::uint64_t gib = 1 << 30;
    SUBCASE("a card whose window is small: it is not used") {
        const auto plan = plan_memory(
            memory_of({{16 * gib, 0},
                       {256 << 20, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                       {8 * gib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
                      {{vram, 2}, {vram | visible, 1}, {visible, 0}, {visible | in_cache, 0}}),
            all_types);
        REQUIRE(plan);
        CHECK(plan->heap == 2);
        CHECK(plan->bytes == 8 * gib);
        CHECK(plan->local_type == 0);
        CHECK_FALSE(plan->mapped_type);
        CHECK(plan->staging_type == 3);
    }
    SUBCASE("a card with a resizable BAR") {
        const auto plan =
            plan_memory(memory_of({{8 * gib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {16 * gib, 0}},
                                  {{visible | in_cache, 1}, {vram, 0}, {vram | visible, 0}}),
                        all_types);
        REQUIRE(plan);
        CHECK(plan->local_type == 1);
        CHECK(plan->mapped_type == 2);
        CHECK_FALSE(plan->cached);
    }
    SUBCASE("an integrated GPU: the memory that the CPU caches is used in place") {
        const auto plan =
            plan_memory(memory_of({{8 * gib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
                                  {{vram, 0}, {vram | visible, 0}, {vram | visible | in_cache, 0}}),
                        all_types);
        REQUIRE(plan);
        CHECK(plan->mapped_type == 2);
        CHECK(plan->cached);
        CHECK(plan->staging_type == 2);
    }
    SUBCASE("types that buffers cannot have, or with unknown properties, are not used") {
        const auto plan = plan_memory(
            memory_of({{8 * gib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
                      {{vram, 0}, {vram | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT, 0}, {vram, 0}}),
            0b110);
        REQUIRE(plan);
        CHECK(plan->local_type == 2);
    }
    SUBCASE("no local memory") {
        CHECK_FALSE(plan_memory(memory_of({{8 * gib, 0}}, {{visible, 0}}), all_types));
    }
}
