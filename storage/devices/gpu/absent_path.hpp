// Stands for a path that a driver does not have: it takes no copy.
#pragma once

#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage {

class AbsentPath final : public LingeringPath {
 public:
    AbsentPath() : LingeringPath(0) {}

    bool add(Copy& copy) override {
        copy.status = Status::io_error;
        return true;
    }
    bool awake() const override { return false; }
    void pass_by() override {}
    void wake() override {}
};

}  // namespace gpunbd::storage
