// The path of copies that the CPU makes through the mapping of device memory, of a GPU or a BAR.
// They end in add().
#pragma once

#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage {

class CpuPath final : public CopyPath {
 public:
    CpuPath() : CopyPath(any_length) {}

    bool add(Copy& copy) override;
};

}  // namespace gpunbd::storage
