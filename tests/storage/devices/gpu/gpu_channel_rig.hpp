// A GPU channel with fake paths, which record their calls and end copies on request.
#pragma once

#include <deque>

#include "storage/devices/gpu/gpu_channel.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

using Steps = std::vector<std::string>;

class FakePath final : public LingeringPath {
 public:
    FakePath(std::string name, Steps& steps)
        : LingeringPath(any_length), name_(std::move(name)), steps_(steps) {}

    void take_at_most(std::uint32_t bytes) { longest_ = bytes; }
    std::uint32_t places = ~0U;  // the number of further copies that may be added
    bool at_once = false;        // copies end in add()
    bool is_awake = true;
    std::function<void(Copy&)> when_added;
    std::function<void()> when_started;
    std::function<void()> when_looked_at;
    std::vector<Copy*> in_flight;
    std::uint32_t woken = 0;
    std::uint32_t passed_by = 0;
    std::uint32_t failures = 0;  // calls of take_all()

    // Ends all copies in flight together.
    void end_all(Status status = Status::ok) {
        CopyQueue& group = ended_.emplace_back();
        for (Copy* copy : std::exchange(in_flight, {})) {
            copy->status = status;
            group.push(*copy);
        }
    }
    // Ends one copy in flight.
    void end_one(std::size_t index, Status status = Status::ok) {
        Copy& copy = *in_flight[index];
        in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(index));
        copy.status = status;
        ended_.emplace_back().push(copy);
    }

    bool has_room(const Copy&) override { return places != 0; }
    bool add(Copy& copy) override {
        --places;
        steps_.push_back(name_ + " " + std::to_string(copy.length));
        if (when_added) when_added(copy);
        if (!at_once) in_flight.push_back(&copy);
        gathers_ = !at_once;
        return at_once;
    }
    void submit() override {
        if (!std::exchange(gathers_, false)) return;
        steps_.push_back(name_ + " starts");
        if (when_started) when_started();
    }
    bool take_ended(CopyQueue& ended) override {
        if (ended_.empty()) return false;
        ended = ended_.front();
        ended_.pop_front();
        return true;
    }
    bool idle() const override { return in_flight.empty() && ended_.empty(); }
    void check_errors() override {
        if (when_looked_at) when_looked_at();
    }
    void take_all(CopyQueue& all) override {
        ++failures;
        end_all();
        for (CopyQueue ended; take_ended(ended);) {
            while (Copy* copy = ended.pop()) all.push(*copy);
        }
    }
    bool awake() const override { return is_awake; }
    void pass_by() override { ++passed_by; }
    void wake() override {
        ++woken;
        steps_.push_back(name_ + " wakes");
    }

 private:
    std::string name_;
    Steps& steps_;
    bool gathers_ = false;
    std::deque<CopyQueue> ended_;
};

struct FakePaths {
    Steps steps;
    FakePath cpu{"cpu", steps};
    FakePath engine{"engine", steps};
    FakePath batch{"batch", steps};
    FakePath kernel{"kernel", steps};
    FakePath persistent{"persistent", steps};

    FakePaths() { cpu.at_once = true; }
    std::array<FakePath*, 5> all() { return {&cpu, &engine, &batch, &kernel, &persistent}; }
    Steps taken() { return std::exchange(steps, {}); }
};

class FakeChannel final : public GpuChannel {
 public:
    FakeChannel(GpuState& state, FakePaths& paths, const Policy& policy)
        : GpuChannel(ChannelOptions{}, state, policy) {
        use({.cpu = &paths.cpu,
             .copy_engine = &paths.engine,
             .engine_batch = &paths.batch,
             .kernel = &paths.kernel,
             .persistent_kernel = &paths.persistent});
    }
    bool receives_into(const Slab&, std::uint32_t) const override { return false; }
    std::uint32_t stops = 0;  // the number of times that kernels were stopped

 private:
    void kernels_stopped() override { ++stops; }
};

// A channel with fake paths that checks that copies end exactly once.
class ChannelRig final : private CopyOwner {
 public:
    explicit ChannelRig(const Policy& policy = default_policy(), GpuUse gpu_use = GpuUse::automatic)
        : state("fake:0", gpu_use), channel(state, paths, policy) {}

    std::size_t add(Copy::Kind kind, std::uint32_t length, bool mapped = false) {
        Slot& slot = slots_.emplace_back();
        slot.copy.kind = kind;
        slot.copy.length = length;
        slot.copy.revocable = revocable;
        slot.copy.urgent = urgent;
        slot.copy.address = address;
        slot.copy.cpu = mapped ? &memory_ : nullptr;
        slot.copy.staging = kind == Copy::Kind::zero ? nullptr : staging_.data();
        slot.copy.owner = this;
        channel.enqueue(slot.copy);
        return slots_.size() - 1;
    }
    bool revocable = false;     // the next copies
    bool urgent = false;        // the next copies
    std::uint64_t address = 0;  // of the next copies
    std::size_t read(std::uint32_t length, bool mapped = false) {
        return add(Copy::Kind::read, length, mapped);
    }
    std::uint32_t ends(std::size_t index) const { return slots_[index].ends; }
    Status status(std::size_t index) const { return slots_[index].copy.status; }
    // Returns true if each copy has ended once with this status.
    bool all_ended(Status wanted) const {
        return std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
            return slot.ends == 1 && slot.copy.status == wanted;
        });
    }
    bool none_ended() const {
        return std::all_of(slots_.begin(), slots_.end(),
                           [](const Slot& slot) { return slot.ends == 0; });
    }
    bool each_ended_once() const {
        return std::all_of(slots_.begin(), slots_.end(),
                           [](const Slot& slot) { return slot.ends == 1; });
    }
    Steps poll() {
        channel.poll();
        return paths.taken();
    }
    // Ends all copies in flight, and checks that all have succeeded.
    void end_all() {
        for (FakePath* path : paths.all()) path->end_all();
        poll();
        CHECK(all_ended(Status::ok));
        CHECK_FALSE(channel.busy());
    }

    FakePaths paths;
    GpuState state;
    FakeChannel channel;
    std::function<void()> when_done;

 private:
    struct Slot {
        Copy copy;
        std::uint32_t ends = 0;
    };

    void copy_done(Copy& copy) override {
        const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                       [&](const Slot& each) { return &each.copy == &copy; });
        ++slot->ends;
        paths.steps.push_back("done " + std::to_string(copy.length));
        if (when_done) when_done();
    }

    std::byte memory_{};
    std::vector<std::byte> staging_ =
        std::vector<std::byte>(mib);  // large enough for any copy, since written copies are demoted
    std::deque<Slot> slots_;
};

}  // namespace gpunbd::storage::test
