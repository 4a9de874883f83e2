#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/passed_descriptors.hpp"

namespace gpunbd::server {

// Stores the driver files of this process's device mappings with the supervisor. A driver removes
// the mappings when the last copy of such a file is closed, which takes 10 ms per GiB
// (server/PERFORMANCE.md). With a copy at the supervisor, a killed server ends without this delay,
// and the next server removes the mappings once it serves clients. They hold memory but cause no
// work.
class KeptMappings {
 public:
    using Files = std::vector<OwnedFd>;

    // Takes the files of an earlier server out of `handed_over`. The store outlives this object.
    KeptMappings(DescriptorStore& store, PassedDescriptors& handed_over);
    ~KeptMappings();  // waits for undo()
    KeptMappings(const KeptMappings&) = delete;
    KeptMappings& operator=(const KeptMappings&) = delete;

    // Stores the files of this process, which the caller owns, and removes the earlier ones.
    void keep(const std::vector<const OwnedFd*>& files);

    // Returns the files of the earlier server, once; empty: there are none.
    Files take_left() { return std::move(left_); }
    // Closes the files on a thread of its own and then calls `then`, which must not throw, on that
    // thread. Calls it immediately if there are no files. Throws std::system_error if the thread
    // cannot be created.
    void undo(std::shared_ptr<Files> left, std::function<void()> then);
    // Closes them synchronously, if there is no address space for new mappings.
    void undo_now();

 private:
    DescriptorStore& store_;
    std::vector<int> kept_;
    bool others_kept_ = true;  // the supervisor may store files of an earlier server
    Files left_;
    std::thread undoing_;
};

// Stores the results of calibrating the devices with the supervisor, so that a restarted server
// need not calibrate.
class KeptCalibration {
 public:
    using States = std::map<std::string, std::string>;  // DeviceRegistry::calibration_states()

    // Takes the data of an earlier server out of `handed_over`. The store outlives this object.
    KeptCalibration(DescriptorStore& store, PassedDescriptors& handed_over);

    // Empty if there are no valid data.
    const States& states() const { return states_; }
    // Replaces the stored states if they differ.
    void keep(const States& states);

 private:
    DescriptorStore& store_;
    States states_;
};

}  // namespace gpunbd::server
