// Measures what snapshots and clones cost, without a server: how long clients wait while one is
// made, the memory of clones, and first writes to shared pages beside those to thin memory.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "storage/devices/drivers/device_drivers.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::bench {
namespace {

using namespace gpunbd::storage;
using Clock = std::chrono::steady_clock;

constexpr const char* usage = R"(usage: shared_pages DEVICE PAGES [WRITERS [full]]

PAGES of 2 MiB are written once; WRITERS (2) threads then write 4 KiB at random places.
Prints one line for each measurement. full: all memory is allocated beforehand, so that new memory
of the system, which may be slow, does not count.
)";
constexpr std::uint64_t page_size = 2 << 20;
constexpr std::uint32_t small = 4096;  // bytes of a client's write
constexpr int rounds = 20;
constexpr std::chrono::microseconds pause{200};  // between two writes of a client
constexpr int clones = 100;

std::unique_ptr<Device> open_device(std::string_view id) {
    for (const DeviceDriver* const driver : device_drivers()) {
        if (!driver->has_scheme_of(id)) continue;
        if (auto device = driver->open(id, 0, {})) return device;
    }
    throw std::runtime_error("no such device: " + std::string(id));
}

std::unique_ptr<Volume> clone_of(Volume& volume) {
    auto made = volume.clone("clone");
    if (const auto* reason = std::get_if<std::string>(&made)) throw std::runtime_error(*reason);
    return std::get<std::unique_ptr<Volume>>(std::move(made));
}

std::uint64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::uint64_t total = 0;
    std::uint64_t resident = 0;
    file >> total >> resident;
    return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double milliseconds(Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

// One worker with one client.
class Client final : private TransferOwner {
 public:
    explicit Client(Device& device)
        : channels_(ChannelOptions{.pinned = 16 << 20}, [this] {
              is_woken_ = true;
              is_woken_.notify_one();
          }) {
        channels_.open(device);
    }
    void write(Volume& volume, std::uint64_t offset, std::span<const std::byte> payload) {
        WriteTransfer transfer;
        transfer.begin({volume, channels_, account_}, *this, {offset, payload.size()});
        for (std::size_t sent = 0; !transfer.done();) {
            const std::size_t filled = transfer.fill(payload.subspan(sent));
            sent += filled;
            if (filled == 0 && !channels_.busy()) {  // as a worker, it sleeps until a page is ready
                is_woken_.wait(false);
                is_woken_ = false;
            }
            channels_.poll();
            if (transfer.status() != Status::ok) throw std::runtime_error("a write failed");
        }
    }

 private:
    void transfer_moved(Transfer&) override {}
    std::atomic<bool> is_woken_{false};
    Channels channels_;
    ClientAccount account_;
};

struct FirstWrites {
    double rate = 0;  // GB/s
    double p50 = 0;   // ms
    double longest = 0;
};

// Writes each page once.
FirstWrites write_all(Client& client, Volume& volume, std::uint64_t pages, std::size_t piece) {
    const std::vector<std::byte> payload(piece, std::byte{7});
    std::vector<Clock::duration> times;
    const auto begin = Clock::now();
    for (std::uint64_t page = 0; page != pages; ++page) {
        const auto before = Clock::now();
        client.write(volume, page * page_size, payload);
        times.push_back(Clock::now() - before);
    }
    const std::chrono::duration<double> time = Clock::now() - begin;
    std::ranges::sort(times);
    return {.rate = static_cast<double>(pages * page_size) / 1e9 / time.count(),
            .p50 = milliseconds(times[times.size() / 2]),
            .longest = milliseconds(times.back())};
}

// `snapshots`: how many are made, one after another, while clients write.
void measure_writes(Device& device, Volume& volume, std::uint64_t pages, unsigned writers,
                    int snapshots) {
    std::atomic<bool> stop{false};
    std::vector<std::vector<Clock::duration>> times(writers);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i != writers; ++i) {
        threads.emplace_back([&, i] {
            Client client(device);
            std::mt19937_64 random(i);
            const std::vector<std::byte> payload(small, std::byte{9});
            while (!stop) {
                const std::uint64_t at = random() % (pages * page_size / small) * small;
                const auto begin = Clock::now();
                client.write(volume, at, payload);
                times[i].push_back(Clock::now() - begin);
                std::this_thread::sleep_for(pause);
            }
        });
    }
    std::vector<Clock::duration> calls;
    for (int i = 0; i != rounds; ++i) {
        const auto begin = Clock::now();
        const auto snapshot = i < snapshots ? clone_of(volume) : nullptr;
        calls.push_back(Clock::now() - begin);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    std::vector<Clock::duration> all;
    for (const auto& each : times) all.insert(all.end(), each.begin(), each.end());
    std::ranges::sort(all);
    std::ranges::sort(calls);
    std::printf("%d snapshots: writes of 4 KiB: %zu, p50 %.3f ms, p99.9 %.3f ms, longest %.3f ms\n",
                snapshots, all.size(), milliseconds(all[all.size() / 2]),
                milliseconds(all[all.size() - 1 - all.size() / 1000]), milliseconds(all.back()));
    if (snapshots == 0) return;
    std::printf("a snapshot: median %.3f ms, longest %.3f ms\n",
                milliseconds(calls[calls.size() / 2]), milliseconds(calls.back()));
}

void measure_memory(Volume& volume, std::uint64_t pages) {
    std::vector<std::unique_ptr<Volume>> all;
    const std::uint64_t before = resident_bytes();
    for (int i = 0; i != clones; ++i) all.push_back(clone_of(volume));
    std::printf("memory of a clone of %llu pages: %.1f KiB\n",
                static_cast<unsigned long long>(pages),
                static_cast<double>(resident_bytes() - before) / clones / 1024);
}

void measure(const std::string& id, std::uint64_t pages, unsigned writers, Provision provision) {
    const auto device = open_device(id);
    device->calibrate();
    auto made = Volume::create({.size = pages * page_size, .provision = provision}, {device.get()});
    if (!std::holds_alternative<std::unique_ptr<Volume>>(made)) {
        throw std::runtime_error("there is not enough memory");
    }
    Volume& volume = *std::get<std::unique_ptr<Volume>>(made);
    Client client(*device);
    for (const std::size_t piece : {std::size_t{small}, std::size_t{page_size}}) {
        const std::uint64_t some = std::min<std::uint64_t>(pages, 512);
        for (std::uint64_t page = 0; page != some; ++page) volume.unmap(page);
        const FirstWrites holes = write_all(client, volume, some, piece);
        const auto snapshot = clone_of(volume);
        const FirstWrites shared = write_all(client, volume, some, piece);
        std::printf(
            "first writes of %zu KiB: to shared pages %.2fx of the speed of those to holes\n",
            piece >> 10, shared.rate / holes.rate);
        for (const auto& [what, each] : {std::pair("holes", holes), std::pair("shared", shared)}) {
            std::printf("  %s: %.2f GB/s of pages, p50 %.3f ms, longest %.3f ms\n", what, each.rate,
                        each.p50, each.longest);
        }
    }
    write_all(client, volume, pages, small);
    if (provision == Provision::thin) measure_memory(volume, pages);
    for (const int snapshots : {0, rounds}) {
        measure_writes(*device, volume, pages, writers, snapshots);
    }
}

}  // namespace
}  // namespace gpunbd::bench

int main(int argc, char** argv) {
    const bool is_full = argc == 5 && std::string_view(argv[4]) == "full";
    if (argc < 3 || (argc > 4 && !is_full)) {
        std::fputs(gpunbd::bench::usage, stderr);
        return 2;
    }
    try {
        using gpunbd::storage::Provision;
        const unsigned long writers = argc > 3 ? std::stoul(argv[3]) : 2;
        gpunbd::bench::measure(argv[1], std::stoull(argv[2]), static_cast<unsigned>(writers),
                               is_full ? Provision::full : Provision::thin);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "shared_pages: %s\n", error.what());
        return 1;
    }
    return 0;
}
