// Copies that the CPU makes itself, through the mapping of the device's memory: a GPU's, or a BAR.
// They end as they are added.
#pragma once

#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage {

class CpuPath final : public CopyPath {
 public:
    CpuPath() : CopyPath(any_length) {}

    // copy.cpu is not null.
    bool add(Copy& copy) override;
};

}  // namespace gpunbd::storage
