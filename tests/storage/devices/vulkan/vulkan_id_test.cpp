#include "storage/devices/vulkan/vulkan_id.hpp"

#include <doctest/doctest.h>

using namespace gpunbd::storage::vulkan;

TEST_CASE("Vulkan: devices are named by number and by UUID") {
    constexpr const char* uuid = "vulkan:GPU-0123abcd-4567-89ab-cdef-0123456789ab";
    CHECK(parse_id("vulkan:0") == "vulkan:0");
    CHECK(parse_id("vulkan:12") == "vulkan:12");
    CHECK(parse_id(uuid) == uuid);
    CHECK(parse_id("vulkan:0123ABCD-4567-89AB-CDEF-0123456789AB") == uuid);
    for (const char* wrong : {"vulkan", "vulkan:", "vulkan:01", "vulkan:1234", "vulkan:x", "cuda:0",
                              "vulkan:GPU-0", "vulkan:0123abcd-4567-89ab-cdef-0123456789a",
                              "vulkan:0123abcd:4567:89ab:cdef:0123456789ab"}) {
        CAPTURE(wrong);
        CHECK_FALSE(parse_id(wrong));
    }
    CHECK(is_named("vulkan:1", 1, "GPU-x"));
    CHECK_FALSE(is_named("vulkan:1", 0, "GPU-x"));
    CHECK(is_named("vulkan:GPU-x", 0, "GPU-x"));
    CHECK(identity_of("GPU-x") == "vulkan:GPU-x");  // not that of the card as a CUDA device
    CHECK(guess_id("amd1") == "vulkan:1");
    CHECK(guess_id("vk") == "vulkan:0");
    CHECK(guess_id("host").empty());
}
