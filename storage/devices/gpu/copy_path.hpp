#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/copy_unit.hpp"

namespace gpunbd::storage {

// Cuts a copy into units, for all kernels.

inline std::uint32_t units_of(const Copy& copy) {
    return (copy.length + copy_unit_bytes - 1) / copy_unit_bytes;
}

// Calls take(CopyUnit) for each unit, in the order of addresses.
template <typename Take>
void cut_into_units(const Copy& copy, Take&& take) {
    for (std::uint32_t at = 0; at < copy.length; at += copy_unit_bytes) {
        std::byte* const device = reinterpret_cast<std::byte*>(copy.address) + at;
        std::byte* const host = copy.staging == nullptr ? nullptr : copy.staging + at;
        const bool reads = copy.kind == Copy::Kind::read;
        take(CopyUnit{.from = reads ? device : host,
                      .to = reads ? host : device,
                      .length = std::min(copy.length - at, copy_unit_bytes)});
    }
}

// Describes a copy for log lines.

// "a read of 4096 bytes at device address 0x7f0000000000"
std::string to_text(const Copy& copy);

// A path for copies to and from a GPU. A channel queries its free capacity, adds copies and polls
// it. A path does not block, does not allocate memory after warm-up, and has no callbacks.
// A path implements add(). The defaults are for paths whose copies end in add(), or are collected
// by another path.
class CopyPath {
 public:
    virtual ~CopyPath() = default;
    CopyPath(const CopyPath&) = delete;
    CopyPath& operator=(const CopyPath&) = delete;

    // Whether the copy may take this path at all. Longer copies may not, even if it is idle.
    virtual bool can_take(const Copy& copy) const { return copy.length <= longest_; }

    // Whether this copy may be added now. To make room, this may submit copies that were added
    // before.
    virtual bool has_room(const Copy&) { return true; }
    // Called if there is room. True: the copy has ended with its status. Otherwise take_ended() or
    // take_all() returns it.
    virtual bool add(Copy& copy) = 0;
    // Ends a round: starts whatever has been gathered.
    virtual void submit() {}
    // Moves a group of ended copies, with their statuses, to `ended`. Called until it returns
    // false.
    virtual bool take_ended(CopyQueue&) { return false; }
    // Whether all copies have been returned.
    virtual bool idle() const { return true; }
    // Called from time to time while copies may be in flight. Fails the device if they will never
    // end.
    virtual void check_errors() {}
    // After the device has failed: returns all copies, ended or not.
    virtual void take_all(CopyQueue&) {}

 protected:
    static constexpr std::uint32_t any_length = std::numeric_limits<std::uint32_t>::max();

    explicit CopyPath(std::uint32_t longest) : longest_(longest) {}

    std::uint32_t longest_;  // bytes; 0: no copy can take this path
};

// A path that stays ready while copies keep coming, and has to be woken after a pause.
class LingeringPath : public CopyPath {
 public:
    // A copy that is added now is served without waking the path.
    virtual bool awake() const = 0;
    // A lone copy found the path asleep and takes another one.
    virtual void pass_by() = 0;
    // That copy and those in flight with it have ended. Wakes the path for the next one if it is
    // expected soon.
    virtual void wake() = 0;

 protected:
    using CopyPath::CopyPath;
};

// Stands for a path that a driver does not have: it takes no copy.
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

// The path of copies that the CPU makes through the mapping of device memory, of a GPU or a BAR.
// They end in add().
class CpuPath final : public CopyPath {
 public:
    CpuPath() : CopyPath(any_length) {}

    bool add(Copy& copy) override;
};

}  // namespace gpunbd::storage
