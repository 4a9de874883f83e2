// A slab that is released at the end of its scope.
#pragma once

#include "storage/devices/device.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

struct OwnedSlab : Slab {
    OwnedSlab(Device& of, const SlabRequest& request) : device(of) {
        REQUIRE(device.allocate(request, *this) == Status::ok);
    }
    ~OwnedSlab() {
        if (is_allocated()) device.release(*this);
    }
    OwnedSlab(const OwnedSlab&) = delete;
    OwnedSlab& operator=(const OwnedSlab&) = delete;

    Device& device;
};

}  // namespace gpunbd::storage::test
