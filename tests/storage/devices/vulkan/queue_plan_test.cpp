#include "storage/devices/vulkan/queue.hpp"

#include "tests/test.hpp"

using namespace gpunbd::storage::vulkan;

namespace {

constexpr VkQueueFlags transfer = VK_QUEUE_TRANSFER_BIT;
constexpr VkQueueFlags compute = VK_QUEUE_COMPUTE_BIT | transfer;
constexpr VkQueueFlags graphics = VK_QUEUE_GRAPHICS_BIT | compute;
constexpr VkQueueFlags video = 0x20;  // VK_QUEUE_VIDEO_DECODE_BIT_KHR

QueuePlan plan(std::initializer_list<VkQueueFlags> flags) {
    std::vector<VkQueueFamilyProperties> families;
    for (const VkQueueFlags each : flags) {
        families.push_back({.queueFlags = each,
                            .queueCount = 1,
                            .timestampValidBits = 0,
                            .minImageTransferGranularity = {}});
    }
    return plan_queues(families);
}

}  // namespace

TEST_CASE("Vulkan: a family that does not copy, or is slow, is passed over") {
    CHECK(choose_family({{.family = 1, .rate = 10}, {.family = 0, .rate = 12}}) == 1);
    CHECK(choose_family({{.family = 1, .rate = 10}, {.family = 0, .rate = 30}}) == 0);
    CHECK(choose_family({{.family = 1, .rate = 0}, {.family = 2, .rate = 5}}) == 2);
    CHECK_FALSE(choose_family({{.family = 1, .rate = 0}}));
    CHECK_FALSE(choose_family({}));
}

TEST_CASE("Vulkan: copies use a family that only copies, and shaders one that does not draw") {
    using Families = std::vector<std::uint32_t>;
    const QueuePlan card = plan({graphics, transfer, compute, transfer | video});
    CHECK(card.copying == Families{1, 2, 0});
    CHECK(card.computing == 2);

    const QueuePlan one_family = plan({graphics});
    CHECK(one_family.copying == Families{0});
    CHECK(one_family.computing == 0);

    const QueuePlan without_flag = plan({VK_QUEUE_COMPUTE_BIT, video});
    CHECK(without_flag.copying == Families{0});

    const QueuePlan only_video = plan({transfer | video});
    CHECK(only_video.copying == Families{0});
    CHECK_FALSE(only_video.computing);

    CHECK(plan({VK_QUEUE_SPARSE_BINDING_BIT}).copying.empty());
}
