// Devices, a volume, channels, and a model of the volume's contents; and requests that are driven
// step by step, as a session does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/devices/faulty/faulty_device.hpp"
#include "storage/transfers/read_transfer.hpp"
#include "storage/transfers/write_transfer.hpp"
#include "tests/storage/devices/file/file_folder.hpp"
#include "tests/storage/devices/pci/fake_card.hpp"
#include "tests/storage/devices/vulkan/driver_layer.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {

struct RigOptions {
    // One letter each: 'h' in place, 's' through staging memory, 'b' a BAR, 'f' a file, 'e'
    // the example driver, 'v' Vulkan's driver on the CPU, in place, 'w' the same through staging
    // memory.
    std::string_view devices = "h";
    std::string_view spills = "";  // the same, for the pages of the first device
    bool spills_later = false;     // the volume has none before set_spills()
    std::uint64_t size = 3 * 128 * kib + 5000;
    std::uint64_t page_size = 128 * kib;
    std::uint64_t stripe_size = 0;
    Provision provision = Provision::thin;
    std::uint64_t capacity = std::uint64_t{1} << 40;  // bytes, of each device
    bool discards = true;
    bool slow = false;  // to allocate memory
    ChannelOptions channels = {.chunk_size = 64 * kib, .slots = 2, .pinned = 256 * kib};
};

class Job;

class Rig {
 public:
    explicit Rig(const RigOptions& options);
    // Checks that every announced slab release has happened.
    ~Rig();
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    std::unique_ptr<Channels> open_channels();
    bool mapped(std::uint64_t page) const { return volume->mapped(page); }
    std::uint64_t pages() const;
    void set_known(std::uint64_t offset, std::uint64_t length, bool is_known);
    // No staging memory is lent and nothing is in progress on these channels.
    void check_idle(Channels& of);
    // Waits until nothing is in progress, and checks that.
    void check_settled();
    // Runs these requests to their ends, and does the same.
    void finish(const std::vector<Job*>& jobs, Random& random);
    // Maps every page.
    void map_all();
    // The spill memory on devices[index] for each of these indices, in this order.
    std::string set_spills(std::initializer_list<std::size_t> indices);
    // Every page can be allocated again, so none is lost. Needs working devices.
    void check_pages();

    RigOptions options;
    FaultScript script;  // of all staged devices
    std::vector<MemoryDevice*> memories;
    std::deque<FakeCard> cards;                // for BARs
    FileFolder folder{FileFolder::in_memory};  // for files
    std::optional<vulkan::test::DriverLayer> vulkan_layer;
    std::vector<std::unique_ptr<Device>> devices;  // with those of the spill memory
    SlabBudget spill_budget;
    std::unique_ptr<Volume> volume;
    std::unique_ptr<Channels> channels;
    // The expected contents. A byte is known until a write of it fails.
    std::vector<std::byte> model;
    std::vector<char> known;

 private:
    Device& make_device(char kind);
    std::unique_ptr<Device> make_memory(std::uint32_t number, bool staged);
    std::unique_ptr<Device> make_bar(std::uint32_t number);
    std::unique_ptr<Device> make_file(std::uint32_t number);
    std::unique_ptr<Device> make_vulkan(std::uint32_t number, bool staged);
};

// Whether this machine has all of these devices. Otherwise the test reports what it skips.
bool has_devices(std::string_view devices);

// One request, from begin to end.
class Job : public TransferOwner {
 public:
    virtual ~Job() = default;
    // Makes one step as the transfer's owner. False: it has to wait.
    virtual bool step(Random& random) = 0;
    // The client has disconnected.
    virtual void abandon() = 0;
    bool ended() const { return ended_; }
    Status status() const { return status_; }

 protected:
    void transfer_moved(Transfer&) override { may_continue_ = true; }
    // True for the first time, and after each transfer_moved().
    bool may_continue() { return std::exchange(may_continue_, false); }
    void end(Status status) {
        ended_ = true;
        status_ = status;
    }

 private:
    bool may_continue_ = true;
    bool ended_ = false;
    Status status_ = Status::ok;
};

// Payload comes in random pieces, received into lent memory or copied there.
class WriteJob final : public Job {
 public:
    WriteJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
             std::uint32_t length, std::uint32_t seed, bool is_durable = false);
    bool step(Random& random) override;
    void abandon() override;
    const std::vector<std::byte>& payload() const { return payload_; }

 private:
    void finish();
    Rig& rig_;
    WriteTransfer transfer_;
    std::uint64_t offset_;
    std::vector<std::byte> payload_;
    std::size_t sent_ = 0;
    bool abandoned_ = false;
    bool blocked_ = false;
};

// Takes pieces, and compares them with the model when it gives them back.
class ReadJob final : public Job {
 public:
    ReadJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
            std::uint32_t length);
    bool step(Random& random) override;
    void abandon() override;
    const ReadTransfer& transfer() const { return transfer_; }

 private:
    void compare(const ReadTransfer::Piece& piece) const;
    Rig& rig_;
    ReadTransfer transfer_;
    std::uint64_t at_;
    std::uint64_t end_;
    std::deque<ReadTransfer::Piece> lent_;
    bool abandoned_ = false;
    bool expect_whole_ = false;
    bool blocked_ = false;
};

class ZeroJob final : public Job {
 public:
    ZeroJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
            std::uint32_t length, bool keep_pages);
    bool step(Random& random) override;
    void abandon() override {}  // needs nothing from its client
    const std::vector<std::uint64_t>& whole_pages() const { return whole_; }

 private:
    Rig& rig_;
    ZeroTransfer transfer_;
    std::uint64_t offset_;
    std::uint32_t length_;
    std::vector<std::uint64_t> whole_;  // pages
};

// Waits for a transfer that needs nothing from its client.
template <typename OneTransfer, typename Base = Job>
class TransferJob : public Base {
 public:
    using Base::Base;
    bool step(Random&) override {
        if (this->ended() || !transfer_.done()) return false;
        this->end(transfer_.status());
        return true;
    }
    void abandon() override {}

 protected:
    OneTransfer transfer_;
};

class FlushJob final : public TransferJob<FlushTransfer> {
 public:
    FlushJob(Rig& rig, Channels& channels, ClientAccount& account) {
        transfer_.begin({*rig.volume, channels, account}, *this);
    }
};

// An owner that needs no calls.
struct SilentOwner final : TransferOwner {
    void transfer_moved(Transfer&) override {}
};

// The requests of one client, one after another.
struct Requests {
    Rig& rig;
    Random random;
    ClientAccount account = {};
    std::uint32_t seed = 0;

    Status finish(Job& job);
    Status write(std::uint64_t offset, std::uint32_t length);
    Status read(std::uint64_t offset, std::uint32_t length);
    Status read_all() { return read(0, static_cast<std::uint32_t>(rig.options.size)); }
    // Checks that whole pages are unmapped, if they are not kept.
    Status zero(std::uint64_t offset, std::uint32_t length, bool keep_pages);
};

// Runs all jobs to their ends. False: they hang.
bool run(Channels& channels, const std::vector<Job*>& jobs, Random& random);
// Polls until nothing is in progress.
void settle(Channels& channels);

}  // namespace gpunbd::storage::test
