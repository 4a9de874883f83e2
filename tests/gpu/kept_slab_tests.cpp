// Slabs of cuda:0 that outlive their process, plain and mapped. Run by ctest. The modes --make and
// --keep are the other processes of a test: one that is killed, and one without CUDA that keeps the
// descriptors meanwhile.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_driver.hpp"
#include "tests/storage/owned_slab.hpp"
#include "tests/test.hpp"

namespace {

// Of this thread: how many succeed before one fails; negative: none fails.
thread_local constinit std::int64_t allocations_until_failure = -1;

}  // namespace

// NOLINTBEGIN: replacing them is the point
void* operator new(std::size_t bytes) {
    const bool fails = allocations_until_failure >= 0 && allocations_until_failure-- == 0;
    void* const memory = fails ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
// NOLINTEND

namespace {

using gpunbd::OwnedFd;
using namespace gpunbd::storage;
using namespace gpunbd::storage::cuda;
using gpunbd::storage::test::OwnedSlab;

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t slab_bytes = 64 * mib;
constexpr std::size_t slab_count = 4;
// Tolerance for other changes on an idle GPU, and for memory of CUDA contexts.
constexpr std::uint64_t slack = 64 * mib;
// Differs between adjacent pages and slabs.
std::byte expected(std::size_t slab, std::uint64_t offset) {
    return static_cast<std::byte>((offset >> 12) * 7 + offset * 3 + slab * 101 + 1);
}

class Copies final : public CopyOwner {
 public:
    explicit Copies(Device& device) : channel_(device.open_channel({.pinned = 16 * mib})) {}

    Status run(Copy::Kind kind, const Slab& slab, std::uint64_t offset,
               std::vector<std::byte>& data) {
        StagingArena& arena =
            kind == Copy::Kind::read ? channel_->read_staging() : channel_->write_staging();
        std::size_t held = 0;
        std::byte* const staging = arena.take(data.size(), held);
        if (staging == nullptr) throw std::runtime_error("no staging memory");
        if (kind == Copy::Kind::write) std::memcpy(staging, data.data(), data.size());
        Copy copy;
        copy.prepare(kind, static_cast<std::uint32_t>(data.size()), slab.address + offset,
                     slab.cpu == nullptr ? nullptr : slab.cpu + offset, staging, *this);
        done_ = false;
        channel_->enqueue(copy);
        while (!done_) channel_->poll();
        if (kind == Copy::Kind::read) std::memcpy(data.data(), staging, data.size());
        arena.give_back(staging, data.size(), held);
        return copy.status;
    }
    void copy_done(Copy&) override { done_ = true; }

 private:
    std::unique_ptr<Channel> channel_;
    bool done_ = false;
};

void fill(Copies& copies, const Slab& slab, std::size_t number) {
    std::vector<std::byte> data(mib);
    for (std::uint64_t at = 0; at != slab.bytes; at += data.size()) {
        for (std::uint64_t i = 0; i != data.size(); ++i) data[i] = expected(number, at + i);
        if (copies.run(Copy::Kind::write, slab, at, data) != Status::ok) {
            throw std::runtime_error("a write failed");
        }
    }
}

bool is_as_filled(Copies& copies, const Slab& slab, std::size_t number) {
    std::vector<std::byte> data(mib);
    for (std::uint64_t at = 0; at != slab.bytes; at += data.size()) {
        if (copies.run(Copy::Kind::read, slab, at, data) != Status::ok) return false;
        for (std::uint64_t i = 0; i != data.size(); ++i) {
            if (data[i] != expected(number, at + i)) return false;
        }
    }
    return true;
}

bool is_zeroes(Copies& copies, const Slab& slab) {
    std::vector<std::byte> data(mib);
    for (std::uint64_t at = 0; at != slab.bytes; at += data.size()) {
        if (copies.run(Copy::Kind::read, slab, at, data) != Status::ok) return false;
        if (std::any_of(data.begin(), data.end(), [](std::byte b) { return b != std::byte{0}; })) {
            return false;
        }
    }
    return true;
}

// Compares the contents as seen by the CPU, if it can address the slab.
bool cpu_sees(const Slab& slab, std::size_t number) {
    for (std::uint64_t at = 0; at < slab.bytes; at += 9973) {
        if (slab.cpu[at] != expected(number, at)) return false;
    }
    return true;
}

SlabRecord record_of(const Slab& slab) {
    return {.bytes = slab.bytes, .provision = Provision::thin, .kind = slab.kind};
}

std::unique_ptr<Device> open(bool mapped) {
    DeviceOptions options;
    if (!mapped) options.mapped = 0;
    return cuda_driver().open("cuda:0", 0, options);
}

// Waits until the device asks the driver again, since it caches the value.
std::uint64_t available(const Device& device) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return device.available();
}

bool can_map() {
    const auto device = open(true);
    return OwnedSlab(*device, {.bytes = 2 * mib}).cpu != nullptr;
}

std::vector<bool> paths() {
    if (can_map()) return {false, true};
    MESSAGE("SKIPPED for mapped slabs: nothing can be mapped here");
    return {false};
}

// --- descriptors from process to process ---------------------------------------------------------

struct Parcel {
    std::array<SlabRecord, slab_count> records;
    std::array<int, slab_count> descriptors;
};

union Control {
    cmsghdr aligned;
    std::array<char, CMSG_SPACE(sizeof(Parcel::descriptors))> bytes;
};

bool send_parcel(int socket, Parcel parcel) {
    Control control{};
    iovec piece{parcel.records.data(), sizeof parcel.records};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof parcel.descriptors);
    std::memcpy(CMSG_DATA(header), parcel.descriptors.data(), sizeof parcel.descriptors);
    return ::sendmsg(socket, &message, 0) == static_cast<ssize_t>(piece.iov_len);
}

bool receive_parcel(int socket, Parcel& parcel) {
    Control control{};
    iovec piece{parcel.records.data(), sizeof parcel.records};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(piece.iov_len)) {
        return false;
    }
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof parcel.descriptors)) return false;
    std::memcpy(parcel.descriptors.data(), CMSG_DATA(header), sizeof parcel.descriptors);
    return true;
}

// Creates slabs, fills them, sends their descriptors, and keeps writing until it is killed.
int make(int socket, bool mapped) {
    const auto device = open(mapped);
    Copies copies(*device);
    std::array<Slab, slab_count> slabs;
    Parcel parcel{};
    for (std::size_t i = 0; i != slabs.size(); ++i) {
        if (device->allocate({.bytes = slab_bytes, .kept = true}, slabs[i]) != Status::ok) return 1;
        if ((slabs[i].cpu != nullptr) != mapped) return 2;
        fill(copies, slabs[i], i);
        parcel.records[i] = record_of(slabs[i]);
        parcel.descriptors[i] = slabs[i].descriptor.get();
    }
    if (!send_parcel(socket, parcel)) return 3;
    for (;;) fill(copies, slabs[0], 0);
}

// Keeps the received descriptors until the sender has ended, and then sends them on.
int keep(int from, int to) {
    Parcel parcel{};
    if (!receive_parcel(from, parcel)) return 1;
    char byte = 0;
    if (::send(to, &byte, 1, 0) != 1) return 2;
    if (::recv(from, &byte, 1, 0) > 0) return 3;
    return send_parcel(to, parcel) ? 0 : 4;
}

pid_t start(const std::vector<std::string>& arguments, const std::vector<int>& passed) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    for (const int each : passed) ::fcntl(each, F_SETFD, 0);
    std::vector<char*> list{const_cast<char*>("kept_slab_gpu_tests")};
    for (const std::string& each : arguments) list.push_back(const_cast<char*>(each.c_str()));
    list.push_back(nullptr);
    ::alarm(150);
    ::execv("/proc/self/exe", list.data());
    ::_exit(127);
}

int end_of(pid_t pid) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status;
}

TEST_CASE("a GPU is identified by its UUID") {
    const auto device = open(false);
    CHECK(device->info().identity.size() ==
          std::strlen("GPU-00000000-0000-0000-0000-000000000000"));
    CHECK(device->info().identity.starts_with("GPU-"));
    CHECK(device->reason_not_kept().empty());
}

TEST_CASE("kept slabs outlive a killed process, and are freed with their last descriptor") {
    for (const bool mapped : paths()) {
        CAPTURE(mapped);
        const auto device = open(mapped);
        Copies copies(*device);
        const std::uint64_t before = available(*device);
        int first[2];
        int second[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, first) == 0);
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, second) == 0);
        const pid_t maker =
            start({"--make", std::to_string(first[0]), mapped ? "mapped" : "plain"}, {first[0]});
        const pid_t keeper = start({"--keep", std::to_string(first[1]), std::to_string(second[1])},
                                   {first[1], second[1]});
        for (const int each : {first[0], first[1], second[1]}) ::close(each);
        char byte = 0;
        REQUIRE(::recv(second[0], &byte, 1, 0) == 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the process is writing now
        REQUIRE(::kill(maker, SIGKILL) == 0);
        REQUIRE(WIFSIGNALED(end_of(maker)));
        Parcel parcel{};
        REQUIRE(receive_parcel(second[0], parcel));
        CHECK(end_of(keeper) == 0);
        ::close(second[0]);
        CHECK(available(*device) + slab_count * slab_bytes < before + slack);

        std::array<Slab, slab_count> slabs;
        for (std::size_t i = 0; i != slabs.size(); ++i) {
            OwnedFd descriptor(parcel.descriptors[i]);
            REQUIRE(device->take_over(descriptor, parcel.records[i], slabs[i]) == Status::ok);
            CHECK(slabs[i].descriptor.get() == parcel.descriptors[i]);
            CHECK(slabs[i].cpu == nullptr);
            CHECK(is_as_filled(copies, slabs[i], i));
            slabs[i].cpu = device->address(slabs[i]);
            REQUIRE((slabs[i].cpu != nullptr) == mapped);
        }
        for (std::size_t i = 0; i != slabs.size(); ++i) {
            CHECK(is_as_filled(copies, slabs[i], i));
            if (mapped) CHECK(cpu_sees(slabs[i], i));
        }
        // Later writes are visible too.
        fill(copies, slabs[0], 7);
        CHECK(is_as_filled(copies, slabs[0], 7));
        for (Slab& slab : slabs) device->release(slab);
        CHECK(available(*device) + slack > before);
    }
}

TEST_CASE("a kept slab can be taken over repeatedly, and a new slab is zeroed") {
    for (const bool mapped : paths()) {
        CAPTURE(mapped);
        OwnedFd descriptor;
        SlabRecord record;
        {
            const auto device = open(mapped);
            Copies copies(*device);
            OwnedSlab slab(*device, {.bytes = slab_bytes, .kept = true});
            CHECK(is_zeroes(copies, slab));
            CHECK((::fcntl(slab.descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0);
            fill(copies, slab, 1);
            record = record_of(slab);
            descriptor = OwnedFd::copy_of(slab.descriptor.get());
            device->release(slab);
            CHECK_FALSE(slab.descriptor);
        }
        for (int turn = 0; turn != 2; ++turn) {
            const auto device = open(mapped);
            Copies copies(*device);
            const std::uint64_t before = device->available();
            Slab slab;
            REQUIRE(device->take_over(descriptor, record, slab) == Status::ok);
            CHECK(device->available() <= before);
            CHECK(is_as_filled(copies, slab, 1));
            descriptor = OwnedFd::copy_of(slab.descriptor.get());
            device->release(slab);
        }
        descriptor = OwnedFd();
        const auto device = open(mapped);
        Copies copies(*device);
        for (int i = 0; i != 4; ++i) {
            const OwnedSlab slab(*device, {.bytes = slab_bytes, .kept = true});
            CHECK(is_zeroes(copies, slab));
            fill(copies, slab, 2);
        }
    }
}

TEST_CASE("a mapped kept slab keeps its contents when it is taken over without a mapping") {
    if (!can_map()) return;
    const auto maker = open(true);
    const OwnedSlab slab(*maker, {.bytes = slab_bytes, .kept = true});
    {
        Copies copies(*maker);
        fill(copies, slab, 3);
    }
    const auto device = open(false);
    Copies copies(*device);
    Slab taken;
    OwnedFd copy = OwnedFd::copy_of(slab.descriptor.get());
    REQUIRE(device->take_over(copy, record_of(slab), taken) == Status::ok);
    CHECK(taken.cpu == nullptr);
    CHECK(is_as_filled(copies, taken, 3));
    device->release(taken);
}

TEST_CASE("the size of a kept slab need not be a multiple of the GPU's granularity") {
    for (const bool mapped : paths()) {
        CAPTURE(mapped);
        const auto device = open(mapped);
        Copies copies(*device);
        for (const std::uint64_t bytes : {mib, 3 * mib}) {
            Slab slab;
            REQUIRE(device->allocate({.bytes = bytes, .kept = true}, slab) == Status::ok);
            CHECK(slab.bytes == bytes);
            fill(copies, slab, 4);
            const SlabRecord record = record_of(slab);
            OwnedFd copy = OwnedFd::copy_of(slab.descriptor.get());
            device->release(slab);
            REQUIRE(device->take_over(copy, record, slab) == Status::ok);
            CHECK(is_as_filled(copies, slab, 4));
            device->release(slab);
        }
    }
}

TEST_CASE("a descriptor that is no kept slab of the GPU is refused and stays open") {
    for (const bool mapped : paths()) {
        CAPTURE(mapped);
        const auto device = open(mapped);
        OwnedSlab good(*device, {.bytes = slab_bytes, .kept = true});
        const SlabRecord record = record_of(good);
        const int file = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        REQUIRE(::ftruncate(file, slab_bytes) == 0);
        const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        int pipe[2];
        REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
        for (const int descriptor : {-1, file, null, pipe[0]}) {
            CAPTURE(descriptor);
            Slab out;
            OwnedFd offered(descriptor);
            CHECK(device->take_over(offered, record, out) == Status::io_error);
            CHECK(out.bytes == 0);
            CHECK(offered.release() == descriptor);
            if (descriptor >= 0) CHECK(::fcntl(descriptor, F_GETFD) >= 0);
        }
        for (const std::uint8_t kind : {std::uint8_t{1}, std::uint8_t{0x7f}, std::uint8_t{0xff}}) {
            Slab out;
            CHECK(device->take_over(good.descriptor, {.bytes = slab_bytes, .kind = kind}, out) ==
                  Status::io_error);
        }
        Slab out;
        CHECK(device->take_over(good.descriptor, {.bytes = 0, .kind = record.kind}, out) ==
              Status::io_error);
        if (!mapped) {
            CHECK(device->take_over(good.descriptor, {.bytes = 2 * slab_bytes}, out) ==
                  Status::io_error);
        }
        CHECK_FALSE(device->failed());
        for (const int each : {file, null, pipe[0], pipe[1]}) ::close(each);
        // The other slab still works.
        Copies copies(*device);
        fill(copies, good, 5);
        CHECK(is_as_filled(copies, good, 5));
    }
}

TEST_CASE("an allocation of the process that fails loses no memory of the GPU") {
    for (const bool mapped : paths()) {
        CAPTURE(mapped);
        const auto device = open(mapped);
        const std::uint64_t before = available(*device);
        std::int64_t number = 0;
        for (bool failed = true; failed; ++number) {
            for (int turn = 0; turn != 8; ++turn) {  // a loss must exceed the slack
                Slab slab;
                Status status = Status::ok;
                allocations_until_failure = number;
                try {  // CHECK would catch it
                    status = device->allocate({.bytes = slab_bytes, .kept = true}, slab);
                    const SlabRecord record = record_of(slab);
                    OwnedFd descriptor = std::move(slab.descriptor);
                    if (slab.bytes != 0) device->release(slab);
                    if (status == Status::ok) status = device->take_over(descriptor, record, slab);
                } catch (const std::bad_alloc&) {
                }
                failed = allocations_until_failure < 0;
                allocations_until_failure = -1;
                CHECK(status == Status::ok);
                if (slab.bytes != 0) device->release(slab);
            }
        }
        CHECK(number > 1);
        CHECK(available(*device) + slack > before);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const std::string mode = arguments.empty() ? "" : arguments[0];
    if (mode == "--keep") return keep(std::stoi(arguments.at(1)), std::stoi(arguments.at(2)));
    if (mode == "--make") return make(std::stoi(arguments.at(1)), arguments.at(2) == "mapped");
    std::string why_none;
    if (cuda_device_count(why_none) == 0) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    return doctest::Context(argc, argv).run();
}
