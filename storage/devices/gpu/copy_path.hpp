// One way that copies take to a GPU and back. A channel asks each of its paths for a place, gives
// it copies and polls it; no path waits, none allocates once it is warm, none calls back.
#pragma once

#include <cstdint>
#include <limits>

#include "storage/devices/channel.hpp"

namespace gpunbd::storage {

// A path has to say how it starts copies. One whose copies end as they start, or in flight with
// those of another path, leaves the rest as it is here.
class CopyPath {
 public:
    virtual ~CopyPath() = default;
    CopyPath(const CopyPath&) = delete;
    CopyPath& operator=(const CopyPath&) = delete;

    // Longer copies never take this path, however little there is in flight.
    bool can_take(const Copy& copy) const { return copy.length <= longest_; }

    // May this copy be added now? Not a question alone: to make room, what has been added before
    // may be submitted.
    virtual bool has_place(const Copy&) { return true; }
    // There is a place. true: the copy has ended, with its status; otherwise the path gives it back
    // by take_ended() or take_all().
    virtual bool add(Copy& copy) = 0;
    // No more is added this round: whatever gathers, starts.
    virtual void submit() {}
    // Moves copies that have ended together, with their statuses, to `ended`. Each poll calls it
    // until it is false: there are no more now.
    virtual bool take_ended(CopyQueue&) { return false; }
    // Nothing has been added that has not been given back.
    virtual bool idle() const { return true; }
    // Now and then while copies may be in flight: fails the device if their ends will never come.
    virtual void look_for_errors() {}
    // The device has failed: gives back everything, ended or not.
    virtual void take_all(CopyQueue&) {}

 protected:
    static constexpr std::uint32_t any_length = std::numeric_limits<std::uint32_t>::max();

    explicit CopyPath(std::uint32_t longest) : longest_(longest) {}

    std::uint32_t longest_;  // bytes; 0: no copy can take this path
};

// A path that is ready for as long as copies keep coming, and has to be woken after a pause.
class LingeringPath : public CopyPath {
 public:
    // A copy that is added now is served without waking anything.
    virtual bool awake() const = 0;
    // A lone copy found it asleep, and takes another path.
    virtual void pass_by() = 0;
    // That copy has ended, or what was on its way with it: wakes up for the next one, if that can
    // be expected soon.
    virtual void wake() = 0;

 protected:
    using CopyPath::CopyPath;
};

}  // namespace gpunbd::storage
