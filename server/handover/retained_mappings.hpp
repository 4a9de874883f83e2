// Files of drivers by which this process maps memory of devices, kept by the supervisor. A driver
// undoes what a process has mapped when the last copy of such a file is closed: 10 ms for each GiB
// (server/PERFORMANCE.md). So a server that is killed ends without that, and the next one undoes it
// once clients have their answers. They hold the memory, too, but no work.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/inherited_descriptors.hpp"

namespace gpunbd::server {

class RetainedMappings {
 public:
    using Files = std::vector<OwnedFd>;

    // Takes what an earlier server has stored out of `handed_over`. The store outlives this.
    RetainedMappings(DescriptorStore& store, InheritedDescriptors& handed_over);
    ~RetainedMappings();  // waits for undo()
    RetainedMappings(const RetainedMappings&) = delete;
    RetainedMappings& operator=(const RetainedMappings&) = delete;

    // The files of this process, the caller's, instead of those that are kept.
    void keep(const std::vector<const OwnedFd*>& files);

    // Those of the earlier server, once; empty: there are none.
    Files take_left() { return std::move(left_); }
    // Closes them in a thread of its own, and calls `then` from there, which throws nothing.
    // Without any, at once. Throws std::system_error where there can be no thread.
    void undo(std::shared_ptr<Files> left, std::function<void()> then);
    // Closes them while who asks waits: there is no room for others.
    void undo_now();

 private:
    DescriptorStore& store_;
    std::vector<int> kept_;
    bool others_kept_ = true;  // perhaps, by the supervisor: of an earlier server
    Files left_;
    std::thread undoing_;
};

}  // namespace gpunbd::server
