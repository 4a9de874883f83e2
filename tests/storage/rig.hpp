// Devices, a volume, channels, and a plain model of what the volume should hold; and requests that
// are driven step by step, as a session would drive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/devices/faulty/faulty_device.hpp"
#include "storage/transfers/read_transfer.hpp"
#include "storage/transfers/write_transfer.hpp"
#include "storage/transfers/zero_transfer.hpp"
#include "tests/storage/devices/pci/made_card.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {

struct RigOptions {
    std::string_view devices =
        "h";  // one each: 'h' is addressed in place, 's' through staging memory, 'b' is a BAR
    std::uint64_t size = 3 * 128 * kib + 5000;
    std::uint64_t page_size = 128 * kib;
    std::uint64_t stripe_size = 0;
    std::uint64_t capacity = std::uint64_t{1} << 40;  // of each device, bytes
    bool discards = true;
    ChannelOptions channels = {.chunk_size = 64 * kib, .slots = 2, .pinned = 256 * kib};
};

class Rig {
 public:
    explicit Rig(const RigOptions& options);

    std::unique_ptr<Channels> open_channels();
    bool mapped(std::uint64_t page) const { return volume->mapped(page); }
    std::uint64_t pages() const;
    void set_known(std::uint64_t offset, std::uint64_t length, bool is_known);
    // No staging memory is lent and nothing is under way on these channels.
    void check_idle(Channels& of);
    // No page is a hole.
    void map_all();
    // Every page can be had again, and none is lost. Needs devices that live.
    void check_pages();

    RigOptions options;
    FaultScript script;  // of all staged devices
    std::vector<MemoryDevice*> memories;
    std::deque<MadeCard> cards;  // of BARs
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<Volume> volume;
    std::unique_ptr<Channels> channels;
    // What the volume holds; a byte is known until a write of it fails.
    std::vector<std::byte> model;
    std::vector<char> known;

 private:
    std::unique_ptr<Device> make_memory(std::uint32_t number, bool staged);
    std::unique_ptr<Device> make_bar(std::uint32_t number);
};

// One request, from begin to end.
class Job : public TransferOwner {
 public:
    virtual ~Job() = default;
    // Does one thing that the transfer's owner may do now; false: there is nothing but to wait.
    virtual bool step(Random& random) = 0;
    // The client is gone.
    virtual void abandon() = 0;
    bool ended() const { return ended_; }
    Status status() const { return status_; }

 protected:
    void transfer_moved(Transfer&) override { told_ = true; }
    // True for the first time, and whenever the transfer has moved.
    bool told() { return std::exchange(told_, false); }
    void end(Status status) {
        ended_ = true;
        status_ = status;
    }

 private:
    bool told_ = true;
    bool ended_ = false;
    Status status_ = Status::ok;
};

// Payload arrives in random pieces, received into what is lent, or copied there.
class WriteJob final : public Job {
 public:
    WriteJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
             std::uint32_t length, std::uint32_t seed);
    bool step(Random& random) override;
    void abandon() override;
    const WriteTransfer& transfer() const { return transfer_; }

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

// Takes pieces and gives them back later, comparing them with the model meanwhile.
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
    void abandon() override {}  // it needs nothing of its client
    const std::vector<std::uint64_t>& whole_pages() const { return whole_; }

 private:
    Rig& rig_;
    ZeroTransfer transfer_;
    std::uint64_t offset_;
    std::uint32_t length_;
    std::vector<std::uint64_t> whole_;  // pages
};

// Runs all to their ends; false: they hang.
bool run(Channels& channels, const std::vector<Job*>& jobs, Random& random);
// Polls until nothing is under way.
void settle(Channels& channels);

}  // namespace gpunbd::storage::test
