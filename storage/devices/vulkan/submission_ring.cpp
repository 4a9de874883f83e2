#include "storage/devices/vulkan/submission_ring.hpp"

#include <thread>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint64_t wait_ns = 50'000'000;  // then the state of the device is checked

void move_all(CopyQueue& from, CopyQueue& to) {
    while (Copy* copy = from.pop()) to.push(*copy);
}

}  // namespace

SubmissionRing::SubmissionRing(VulkanState& state, Queue& queue, std::uint32_t depth)
    : state_(state), queue_(queue), groups_(depth) {
    VkSemaphoreTypeCreateInfo type{};
    type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    info.pNext = &type;
    const LogicalDevice& device = state_.device;
    require(device.functions().CreateSemaphore(device.get(), &info, nullptr, &semaphore_),
            "no semaphore can be created");
}

SubmissionRing::~SubmissionRing() {
    wait();
    const LogicalDevice& device = state_.device;
    device.functions().DestroySemaphore(device.get(), semaphore_, nullptr);
}

void SubmissionRing::close(VkCommandBuffer commands) {
    GPUNBD_ASSERT(!full(), "a group has ended before its command buffer is used again");
    Group& group = groups_[slot()];
    GPUNBD_ASSERT(group.copies.empty(), "the copies of a group that has ended were returned");
    group.copies = std::exchange(open_, CopyQueue{});
    group.submission.commands = commands;
    group.submission.semaphore = semaphore_;
    group.submission.value = ++next_;
    queue_.add(group.submission);
    added_ = true;
}

void SubmissionRing::submit() {
    if (std::exchange(added_, false)) queue_.submit();
}

void SubmissionRing::refuse_open(VkResult error) {
    while (Copy* copy = open_.pop()) {
        state_.refuse(*copy, error);
        refused_.push(*copy);
    }
}

bool SubmissionRing::take_ended(CopyQueue& ended) {
    if (!refused_.empty()) {
        move_all(refused_, ended);
        return true;
    }
    if (first_ == next_) return false;
    Group& group = groups_[first_ % groups_.size()];
    if (!has_ended(group)) return false;
    move_all(group.copies, ended);
    ++first_;
    return true;
}

bool SubmissionRing::has_ended(const Group& group) {
    const VkResult outcome = group.submission.outcome.load(std::memory_order_acquire);
    if (outcome == VK_NOT_READY) return false;
    if (outcome != VK_SUCCESS) {
        for (Copy* copy = group.copies.front(); copy != nullptr; copy = copy->next) {
            state_.refuse(*copy, outcome);
        }
        return true;
    }
    if (reached_ >= group.submission.value) return true;
    const LogicalDevice& device = state_.device;
    std::uint64_t value = 0;
    const VkResult result =
        device.functions().GetSemaphoreCounterValue(device.get(), semaphore_, &value);
    if (result != VK_SUCCESS) {
        state_.report(result, "waiting for copies");
        return false;
    }
    reached_ = value;
    return reached_ >= group.submission.value;
}

void SubmissionRing::take_all(CopyQueue& ended) {
    move_all(refused_, ended);
    for (std::uint64_t each = first_; each != next_; ++each) {
        move_all(groups_[each % groups_.size()].copies, ended);
    }
    move_all(open_, ended);
}

VkResult SubmissionRing::query() const {
    std::uint64_t value = 0;
    const LogicalDevice& device = state_.device;
    return device.functions().GetSemaphoreCounterValue(device.get(), semaphore_, &value);
}

VkResult SubmissionRing::wait() {
    submit();
    VkResult error = VK_SUCCESS;
    for (; first_ != next_; ++first_) {
        const VkResult result = wait_for(groups_[first_ % groups_.size()].submission);
        if (result != VK_SUCCESS) error = result;
    }
    return error;
}

VkResult SubmissionRing::wait_for(const Submission& submission) {
    VkResult result = VK_NOT_READY;
    while ((result = submission.outcome.load(std::memory_order_acquire)) == VK_NOT_READY) {
        std::this_thread::yield();  // another thread is submitting it
    }
    if (result != VK_SUCCESS) return result;
    const LogicalDevice& device = state_.device;
    VkSemaphoreWaitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    info.semaphoreCount = 1;
    info.pSemaphores = &semaphore_;
    info.pValues = &submission.value;
    do {
        result = device.functions().WaitSemaphores(device.get(), &info, wait_ns);
    } while (result == VK_TIMEOUT && !state_.failed());
    return result == VK_TIMEOUT ? VK_ERROR_DEVICE_LOST : result;
}

}  // namespace gpunbd::storage::vulkan
