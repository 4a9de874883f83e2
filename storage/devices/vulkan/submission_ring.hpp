// Groups of copies that the device executes, each with one command buffer. A timeline semaphore
// counts the groups that have ended; the CPU polls it.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/devices/channel.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

class SubmissionRing {
 public:
    // At most `depth` groups are in flight. Throws Unavailable. Both references outlive this.
    SubmissionRing(VulkanState& state, Queue& queue, std::uint32_t depth);
    SubmissionRing(const SubmissionRing&) = delete;
    SubmissionRing& operator=(const SubmissionRing&) = delete;
    ~SubmissionRing();  // waits for all groups, unless the device has failed

    Queue& queue() const { return queue_; }
    std::uint32_t depth() const { return static_cast<std::uint32_t>(groups_.size()); }
    bool idle() const { return first_ == next_ && open_.empty() && refused_.empty(); }
    bool full() const { return in_flight() == depth(); }
    std::uint32_t in_flight() const { return static_cast<std::uint32_t>(next_ - first_); }
    // The number of the open group among `depth`. Its command buffer is not in use unless full().
    std::uint32_t slot() const { return static_cast<std::uint32_t>(next_ % groups_.size()); }

    CopyQueue& open() { return open_; }
    // Closes the open group after its last command has been recorded. Call submit() next.
    void close(VkCommandBuffer commands);
    void submit();
    // The commands of the open group could not be recorded: its copies end with this error.
    void refuse_open(VkResult error);

    // If the oldest group has ended, moves its copies to `ended`.
    bool take_ended(CopyQueue& ended);
    // Moves all copies to `ended`, in flight or not.
    void take_all(CopyQueue& ended);
    // Blocks until all groups have ended or the device has failed. Returns an error of any of them.
    VkResult wait();
    // Asks the driver for the value of the semaphore, only to see an error. Any thread.
    VkResult query() const;

 private:
    struct Group {
        CopyQueue copies;
        Submission submission;
    };

    bool has_ended(const Group& group);
    VkResult wait_for(const Submission& submission);

    VulkanState& state_;
    Queue& queue_;
    VkSemaphore semaphore_ = VK_NULL_HANDLE;
    std::vector<Group> groups_;
    CopyQueue open_;
    CopyQueue refused_;
    std::uint64_t first_ = 0;    // groups [first_, next_) are in flight
    std::uint64_t next_ = 0;     // a group signals its number + 1
    std::uint64_t reached_ = 0;  // the value of the semaphore that was read last
    bool added_ = false;         // submit() is due
};

}  // namespace gpunbd::storage::vulkan
