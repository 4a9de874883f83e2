// Another program takes memory of cuda:0 while it holds revocable slabs: each of its allocations
// succeeds, clients go on and see the right contents, and pages return when it has ended. Prints
// how long it takes. Exits with 77 if there is no GPU.
//
// `take COUNT` is the other program: it allocates COUNT GiB and holds them until its standard input
// ends.
#include <cuda_runtime_api.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/gpu/revocable_slabs.hpp"
#include "storage/devices/host/system_memory.hpp"
#include "tests/test.hpp"

namespace {

using namespace gpunbd::storage;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t gib = 1 << 30;
constexpr std::uint64_t slab_bytes = 64 * mib;
constexpr std::uint32_t written = 1 << 20;      // bytes, at a time
constexpr std::uint32_t piece = 4096;           // bytes that a reader reads at a time
constexpr std::uint64_t beyond_free = 8 * gib;  // how much the other program takes of ours

double ms(Clock::duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

// --- the other program ---------------------------------------------------------------------------

int take(int count) {
    for (int i = 0; i != count; ++i) {
        void* memory = nullptr;
        const auto begin = Clock::now();
        const cudaError_t error = cudaMalloc(&memory, gib);
        if (error != cudaSuccess) {
            std::printf("failed: allocation %d of %d: %s\n", i + 1, count, cudaGetErrorName(error));
            std::fflush(stdout);
            return 1;
        }
        std::printf("%.3f\n", ms(Clock::now() - begin));
        std::fflush(stdout);
    }
    std::printf("done\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
}

class OtherProgram {
 public:
    explicit OtherProgram(std::uint64_t count) {
        std::array<int, 2> in{};
        std::array<int, 2> out{};
        REQUIRE(::pipe2(in.data(), O_CLOEXEC) == 0);
        REQUIRE(::pipe2(out.data(), O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions{};
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
        std::string program = "/proc/self/exe";
        std::string what = "take";
        std::string number = std::to_string(count);
        char* const arguments[] = {program.data(), what.data(), number.data(), nullptr};
        REQUIRE(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ) == 0);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(in[0]);
        ::close(out[1]);
        input_ = in[1];
        output_ = ::fdopen(out[0], "r");
    }
    OtherProgram(const OtherProgram&) = delete;
    OtherProgram& operator=(const OtherProgram&) = delete;
    ~OtherProgram() { end(); }

    // Waits until it has allocated everything. The duration of each allocation, in milliseconds.
    std::vector<double> durations() {
        std::vector<double> all;
        std::array<char, 256> line{};
        while (std::fgets(line.data(), line.size(), output_) != nullptr) {
            const std::string_view text(line.data());
            if (text == "done\n") return all;
            CHECK_MESSAGE(!text.starts_with("failed"), text);
            all.push_back(std::atof(line.data()));
        }
        FAIL_CHECK("the other program ended");
        return all;
    }
    void end() {
        if (pid_ == 0) return;
        ::close(input_);
        std::fclose(output_);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

 private:
    pid_t pid_ = 0;
    int input_ = -1;
    std::FILE* output_ = nullptr;
};

// --- clients -------------------------------------------------------------------------------------

std::uint64_t expected(std::uint64_t address) { return (address + 1) * 0x9e3779b97f4a7c15; }

class Client final : private CopyOwner {
 public:
    static constexpr std::uint32_t most = 32;  // copies at once

    explicit Client(Device& device) : channel_(device.open_channel({.pinned = 16 << 20})) {}

    // Writes the pattern.
    bool fill(const Slab& slab) {
        bool good = true;
        for (std::uint64_t at = 0; at != slab.bytes; at += written) {
            std::size_t held = 0;
            std::byte* const memory = channel_->write_staging().take(written, held);
            auto* const words = reinterpret_cast<std::uint64_t*>(memory);
            for (std::uint64_t i = 0; i != written / 8; ++i) {
                words[i] = expected(slab.address + at + i * 8);
            }
            start(0, Copy::Kind::write, slab, at, memory, written);
            good &= finish();
            channel_->write_staging().give_back(memory, written, held);
        }
        return good;
    }
    // Reads from random places at once. Returns how many reads failed or were wrong.
    std::uint64_t read(const std::vector<Slab>& slabs, std::uint32_t count, std::uint32_t length,
                       std::mt19937_64& random) {
        std::size_t held = 0;
        std::array<std::byte*, most> memory{};
        std::array<std::uint64_t, most> address{};
        for (std::uint32_t i = 0; i != count; ++i) {
            const Slab& slab = slabs[random() % slabs.size()];
            const std::uint64_t at = random() % (slab.bytes / length) * length;
            memory[i] = channel_->read_staging().take(length, held);
            address[i] = slab.address + at;
            start(i, Copy::Kind::read, slab, at, memory[i], length);
        }
        std::uint64_t wrong = finish() ? 0 : count;
        for (std::uint32_t i = 0; i != count; ++i) {
            wrong += is_right(memory[i], address[i], length) ? 0 : 1;
            channel_->read_staging().give_back(memory[i], length, held);
        }
        return wrong;
    }
    // Reads everything in order.
    std::uint64_t read_all(const std::vector<Slab>& slabs) {
        std::uint64_t wrong = 0;
        std::size_t held = 0;
        std::byte* const memory = channel_->read_staging().take(written, held);
        for (const Slab& slab : slabs) {
            for (std::uint64_t at = 0; at != slab.bytes; at += written) {
                start(0, Copy::Kind::read, slab, at, memory, written);
                const bool good = finish() && is_right(memory, slab.address + at, written);
                wrong += good ? 0 : 1;
            }
        }
        channel_->read_staging().give_back(memory, written, held);
        return wrong;
    }

 private:
    static bool is_right(const std::byte* data, std::uint64_t address, std::uint32_t length) {
        for (std::uint64_t i = 0; i != length; i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, data + i, sizeof word);
            if (word != expected(address + i)) return false;
        }
        return true;
    }
    void start(std::uint32_t index, Copy::Kind kind, const Slab& slab, std::uint64_t at,
               std::byte* staging, std::uint32_t length) {
        Copy& copy = copies_[index];
        copy.prepare(kind, length, slab.address + at, nullptr, staging, *this, slab.revocable);
        ++pending_;
        channel_->enqueue(copy);
    }
    bool finish() {
        failed_ = false;
        while (pending_ != 0) channel_->poll();
        return !failed_;
    }
    void copy_done(Copy& copy) override {
        --pending_;
        failed_ |= copy.status != Status::ok;
    }

    std::unique_ptr<Channel> channel_;
    std::array<Copy, most> copies_;
    std::uint32_t pending_ = 0;
    bool failed_ = false;
};

// Reads at random until it is stopped.
class Reader {
 public:
    Reader(Device& device, const std::vector<Slab>& slabs, std::uint32_t count,
           std::uint32_t length)
        : count_(count), length_(length), thread_([&device, &slabs, this] {
              Client client(device);
              std::mt19937_64 random(count_);
              do {
                  const auto begin = Clock::now();
                  wrong_ += client.read(slabs, count_, length_, random);
                  latencies_.push_back(Clock::now() - begin);
              } while (!stop_);
          }) {}

    // Returns how many reads were wrong.
    std::uint64_t stop(const char* phase) {
        stop_ = true;
        thread_.join();
        std::ranges::sort(latencies_);
        const std::size_t rounds = latencies_.size();
        const auto us = [&](std::size_t index) { return 1000 * ms(latencies_[index]); };
        std::printf("  %2u x %4u KiB %-8s %8zu rounds, p50 %8.1f us, p99 %8.1f us, longest %8.0f\n",
                    count_, length_ >> 10, phase, rounds, us(rounds / 2),
                    us(rounds - 1 - rounds / 100), us(rounds - 1));
        return wrong_;
    }

 private:
    const std::uint32_t count_;
    const std::uint32_t length_;
    std::vector<Clock::duration> latencies_;
    std::atomic<bool> stop_{false};
    std::uint64_t wrong_ = 0;
    std::thread thread_;  // destroyed first
};

// Several clients at once.
class Readers {
 public:
    Readers(Device& device, const std::vector<Slab>& slabs)
        : one_(device, slabs, 1, piece),
          many_(device, slabs, Client::most, piece),
          long_(device, slabs, 1, written) {}
    std::uint64_t stop(const char* phase) {
        return one_.stop(phase) + many_.stop(phase) + long_.stop(phase);
    }

 private:
    Reader one_;
    Reader many_;
    Reader long_;
};

// --- tests ---------------------------------------------------------------------------------------

double in_gib(std::uint64_t bytes) { return static_cast<double>(bytes) / gib; }

// 60% of the GPU, if the host can take as much.
std::uint64_t test_bytes(std::uint64_t total, std::uint64_t free) {
    const SystemMemory host("/");
    const std::uint64_t kept = host_reserve_beside_revocable(host.total());
    const std::uint64_t room = host.available() - std::min(host.available(), kept);
    return std::min({total / 10 * 6, free / 10 * 9, room}) / slab_bytes * slab_bytes;
}

void run_beside_another_program(GpuUse use) {
    const DeviceInfo info = cuda::open_cuda_device(0, 0, {})->info();
    const std::uint64_t free_at_start = cuda::open_cuda_device(0, 0, {})->free_memory();
    const std::uint64_t bytes = test_bytes(info.total, free_at_start);
    const auto device = cuda::open_cuda_device(0, 0, {.revocable = bytes, .gpu_use = use});
    std::vector<Slab> slabs(bytes / slab_bytes);
    auto begin = Clock::now();
    for (Slab& slab : slabs) {
        REQUIRE(device->allocate({.bytes = slab_bytes}, slab) == Status::ok);
        REQUIRE(slab.revocable);
        REQUIRE(slab.cpu == nullptr);
    }
    std::printf("%s: %.1f GiB of revocable slabs, allocated in %.0f ms\n", info.name.c_str(),
                in_gib(bytes), ms(Clock::now() - begin));
    CHECK(device->use(0).revocable == bytes);
    {
        Client client(*device);
        for (const Slab& slab : slabs) REQUIRE(client.fill(slab));
    }
    {
        Readers readers(*device, slabs);
        std::this_thread::sleep_for(std::chrono::seconds(1));
        CHECK(readers.stop("before") == 0);
    }
    const std::uint64_t free_before = device->free_memory();
    const std::uint64_t count = (free_before + beyond_free) / gib;
    std::printf("another program takes %llu GiB while %.1f GiB are free\n",
                static_cast<unsigned long long>(count), in_gib(free_before));
    {
        auto readers = std::make_unique<Readers>(*device, slabs);
        begin = Clock::now();
        OtherProgram other(count);
        std::vector<double> durations = other.durations();
        std::printf("  all in %.0f ms", ms(Clock::now() - begin));
        CHECK(durations.size() == count);
        std::ranges::sort(durations);
        std::printf(", p50 %.1f ms, longest %.1f ms for 1 GiB\n", durations[durations.size() / 2],
                    durations.back());
        CHECK(readers->stop("taking") == 0);
        while (device->use(0).yielded != bytes) std::this_thread::yield();
        std::printf("  the CPU accesses all slabs after %.0f ms\n", ms(Clock::now() - begin));
        CHECK(device->use(0).evictions == 1);
        readers = std::make_unique<Readers>(*device, slabs);
        std::this_thread::sleep_for(std::chrono::seconds(2));
        CHECK(readers->stop("taken") == 0);
        Slab none;
        CHECK(device->allocate({.bytes = slab_bytes}, none) == Status::no_space);
    }
    const std::uint64_t free_after = device->free_memory();
    std::printf("it has ended: %.1f GiB are free\n", in_gib(free_after));
    CHECK(free_after > free_before + beyond_free / 2);  // pages of ours are on the host
    begin = Clock::now();
    {
        Readers readers(*device, slabs);
        while (device->use(0).yielded == bytes) std::this_thread::yield();
        const auto first = Clock::now();
        while (device->use(0).yielded != 0) std::this_thread::yield();
        std::printf("  pages begin to return after %.0f ms, which takes %.0f ms\n",
                    ms(first - begin), ms(Clock::now() - first));
        CHECK(readers.stop("back") == 0);
    }
    CHECK(device->free_memory() < free_before + gib);  // they are on the device again
    {
        Readers readers(*device, slabs);
        std::this_thread::sleep_for(std::chrono::seconds(1));
        CHECK(readers.stop("after") == 0);
    }
    CHECK(device->use(0).evictions == 1);
    CHECK(Client(*device).read_all(slabs) == 0);
    for (Slab& slab : slabs) device->release(slab);
    CHECK(device->use(0).revocable == 0);
    CHECK(device->free_memory() + gib > free_at_start);
}

TEST_CASE("another program takes memory of revocable slabs, and they come back") {
    run_beside_another_program(GpuUse::automatic);
}

TEST_CASE("the same without kernels") { run_beside_another_program(GpuUse::copy_engines); }

TEST_CASE("only so many slabs are revocable, and neither kept nor fixed slabs are") {
    const auto device = cuda::open_cuda_device(0, 0, {.revocable = 2 * slab_bytes});
    Slab kept;
    Slab fixed;
    if (device->reason_not_kept().empty()) {
        REQUIRE(device->allocate({.bytes = slab_bytes, .kept = true}, kept) == Status::ok);
        CHECK_FALSE(kept.revocable);
        device->release(kept);
    }
    REQUIRE(device->allocate({.bytes = slab_bytes, .fixed = true}, fixed) == Status::ok);
    CHECK_FALSE(fixed.revocable);
    std::vector<Slab> slabs(3);
    for (Slab& slab : slabs) {
        REQUIRE(device->allocate({.bytes = slab_bytes}, slab) == Status::ok);
    }
    CHECK(slabs[0].revocable);
    CHECK(slabs[1].revocable);
    CHECK_FALSE(slabs[2].revocable);
    CHECK(device->use(0).revocable == 2 * slab_bytes);
    device->release(slabs[0]);
    REQUIRE(device->allocate({.bytes = slab_bytes}, slabs[0]) == Status::ok);
    CHECK(slabs[0].revocable);
    Client client(*device);
    for (const Slab& slab : slabs) CHECK(client.fill(slab));
    CHECK(client.read_all(slabs) == 0);
    for (Slab& slab : slabs) device->release(slab);
    device->release(fixed);
}

TEST_CASE("a device that the host cannot hold is refused with one line") {
    constexpr std::uint64_t too_much = std::uint64_t{1} << 50;
    const auto open = [] { cuda::open_cuda_device(0, 0, {.revocable = too_much}); };
    CHECK_THROWS_WITH_AS(open(), doctest::Contains("cuda:0: revocable is "), std::runtime_error);
    CHECK_THROWS_WITH_AS(open(), doctest::Contains(" MiB, but the host can take only "),
                         std::runtime_error);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::string_view(argv[1]) == "take") return take(std::atoi(argv[2]));
    std::string why_none;
    if (cuda::cuda_device_count(why_none) == 0) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    return doctest::Context(argc, argv).run();
}
