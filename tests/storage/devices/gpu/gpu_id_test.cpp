#include "storage/devices/gpu/gpu_id.hpp"

#include "storage/devices/vulkan/physical_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("GPU id: devices are named by number, UUID and PCI address") {
    constexpr const char* uuid = "cuda:GPU-0123abcd-4567-89ab-cdef-0123456789ab";
    const auto parse = [](std::string_view text) { return parse_gpu_id("cuda", text); };
    CHECK(parse("cuda:0") == "cuda:0");
    CHECK(parse("cuda:12") == "cuda:12");
    CHECK(parse(uuid) == uuid);
    CHECK(parse("cuda:0123ABCD-4567-89AB-CDEF-0123456789AB") == uuid);
    CHECK(parse("cuda:0000:0A:00.0") == "cuda:0000:0a:00.0");
    CHECK(parse("cuda:0a:00.0") == "cuda:0000:0a:00.0");
    CHECK(parse("cuda:00000000:0A:00.0") == "cuda:0000:0a:00.0");
    CHECK(parse("cuda:00010000:0A:00.0") == "cuda:10000:0a:00.0");
    CHECK(parse_gpu_id("vulkan", "vulkan:0a:00.0") == "vulkan:0000:0a:00.0");
    for (const char* wrong :
         {"cuda", "cuda:", "cuda:01", "cuda:1234", "cuda:x", "vulkan:0", "cuda0", "cuda:GPU-0",
          "cuda:0123abcd-4567-89ab-cdef-0123456789a", "cuda:0123abcd:4567:89ab:cdef:0123456789ab",
          "cuda:MIG-0123abcd-4567-89ab-cdef-0123456789ab", "cuda:0a:00", "cuda:0a:00.8",
          "cuda:000000000:0a:00.0", "cuda:0a:00.0/0"}) {
        CAPTURE(wrong);
        CHECK_FALSE(parse(wrong));
    }
}

TEST_CASE("GPU id: which device an id names") {
    const auto named = [](std::string_view id) {
        return is_gpu_named(id, 1, "GPU-x", "0000:0a:00.0");
    };
    CHECK(named("cuda:1"));
    CHECK(named("cuda:GPU-x"));
    CHECK(named("cuda:0000:0a:00.0"));
    CHECK_FALSE(named("cuda:0"));
    CHECK_FALSE(named("cuda:GPU-y"));
    CHECK_FALSE(named("cuda:0001:0a:00.0"));
}

TEST_CASE("GPU id: names of other programs") {
    // Not the identity of the same card as a CUDA device.
    CHECK(vulkan::identity_of("GPU-x") == "vulkan:GPU-x");
    CHECK(vulkan::guess_id("amd1") == "vulkan:1");
    CHECK(vulkan::guess_id("vk") == "vulkan:0");
    CHECK(vulkan::guess_id("host").empty());
}

}  // namespace
}  // namespace gpunbd::storage::test
