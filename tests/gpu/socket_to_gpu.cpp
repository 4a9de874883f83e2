// Measures the limit of sockets and GPUs without gpunbd: pairs of threads, of which one sends into
// a Unix socket, and the other receives into pinned memory and copies to the GPUs in turn. See
// "large writes" in server/PERFORMANCE.md.
#include <cuda_runtime_api.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "storage/devices/store.hpp"
#include "tests/bench/cpu_time.hpp"

namespace {

constexpr std::size_t message = 1 << 20;  // bytes
constexpr std::size_t ring = 4;           // messages of a pair in pinned memory

struct Options {
    std::vector<int> gpus;
    unsigned pairs = 16;
    std::size_t memory = 4096;  // MiB of all GPUs, written cyclically
    bool demotes = false;
    double seconds = 0.5;
};

struct Shared {
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> messages{0};
    std::atomic<std::uint64_t> send_ns{0};  // CPU time
    std::atomic<std::uint64_t> receive_ns{0};
};

// May be called from any thread.
[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "socket_to_gpu: %s\n", what);
    std::_Exit(EXIT_FAILURE);
}

void check(cudaError_t error) {
    if (error != cudaSuccess) fail(cudaGetErrorString(error));
}

std::uint64_t cpu_ns() { return gpunbd::bench::clock_ns(CLOCK_THREAD_CPUTIME_ID); }

void send_messages(int socket, Shared& shared) {
    static const std::vector<std::byte> payload(message, std::byte{0x5a});
    std::uint64_t before = cpu_ns();
    while (!shared.stop) {
        for (std::size_t at = 0; at != message;) {
            const ssize_t sent = send(socket, payload.data() + at, message - at, MSG_NOSIGNAL);
            if (sent <= 0) return;
            at += static_cast<std::size_t>(sent);
        }
        const std::uint64_t now = cpu_ns();
        shared.send_ns += now - before;
        before = now;
    }
}

// A message in pinned memory, and its stream to one GPU. Not freed before the program ends.
struct Slot {
    int gpu = 0;
    std::byte* pinned = nullptr;
    std::byte* device = nullptr;
    std::size_t messages = 0;  // capacity of this slot's GPU memory
    cudaStream_t stream = nullptr;
    cudaEvent_t copied = nullptr;

    Slot(int ordinal, std::size_t room) : gpu(ordinal), messages(room) {
        check(cudaSetDevice(gpu));
        void* memory = nullptr;
        check(cudaHostAlloc(&memory, message, cudaHostAllocPortable));
        pinned = static_cast<std::byte*>(memory);
        check(cudaMalloc(&memory, messages * message));
        device = static_cast<std::byte*>(memory);
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        check(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    }
};

void receive_messages(int socket, std::vector<Slot>& slots, bool demotes, Shared& shared) {
    std::uint64_t before = cpu_ns();
    for (std::size_t number = 0; !shared.stop; ++number) {
        Slot& slot = slots[number % slots.size()];
        while (cudaEventQuery(slot.copied) == cudaErrorNotReady) {
        }
        for (std::size_t at = 0; at != message;) {
            const ssize_t got = recv(socket, slot.pinned + at, message - at, 0);
            if (got <= 0) return;
            at += static_cast<std::size_t>(got);
        }
        if (demotes) gpunbd::storage::demote(slot.pinned, message);
        const std::size_t round = number / slots.size() % slot.messages;
        check(cudaSetDevice(slot.gpu));
        check(cudaMemcpyAsync(slot.device + round * message, slot.pinned, message,
                              cudaMemcpyHostToDevice, slot.stream));
        check(cudaEventRecord(slot.copied, slot.stream));
        const std::uint64_t now = cpu_ns();
        shared.receive_ns += now - before;
        before = now;
        ++shared.messages;
    }
}

void run(const Options& options) {
    struct Pair {
        int sockets[2] = {-1, -1};
        std::vector<Slot> slots;
    };
    std::vector<Pair> pairs(options.pairs);
    const std::size_t room =
        std::max<std::size_t>(1, options.memory * (1 << 20) / (options.pairs * ring * message));
    for (Pair& pair : pairs) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.sockets) != 0) {
            fail("socketpair failed");
        }
        for (std::size_t i = 0; i != ring; ++i) {
            pair.slots.emplace_back(options.gpus[i % options.gpus.size()], room);
        }
    }
    Shared shared;
    std::vector<std::jthread> threads;
    for (Pair& pair : pairs) {
        threads.emplace_back([&] { send_messages(pair.sockets[0], shared); });
        threads.emplace_back(
            [&] { receive_messages(pair.sockets[1], pair.slots, options.demotes, shared); });
    }
    using Clock = std::chrono::steady_clock;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    shared.messages = shared.send_ns = shared.receive_ns = 0;
    const Clock::time_point begun = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    const auto messages = static_cast<double>(shared.messages);
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    const double send_us = static_cast<double>(shared.send_ns) / 1e3 / messages;
    const double receive_us = static_cast<double>(shared.receive_ns) / 1e3 / messages;
    shared.stop = true;
    for (const Pair& pair : pairs) {
        shutdown(pair.sockets[0], SHUT_RDWR);
        shutdown(pair.sockets[1], SHUT_RDWR);
    }
    threads.clear();
    std::printf("%u pairs, %zu GPUs%s: %.1f GB/s, sender %.0f us, receiver %.0f us a MiB\n",
                options.pairs, options.gpus.size(), options.demotes ? ", demoted" : "",
                messages * message / seconds / 1e9, send_us, receive_us);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Measures Unix sockets into pinned memory, copied to GPUs, without gpunbd.");
    Options options;
    app.add_option("--gpus", options.gpus, "ordinals of the GPUs, for example 0,1")
        ->delimiter(',')
        ->required();
    app.add_option("--pairs", options.pairs, "of threads")->check(CLI::Range(1, 256));
    app.add_option("--memory", options.memory, "MiB to allocate on all GPUs together");
    app.add_flag("--demote", options.demotes, "move received data to the shared cache first");
    app.add_option("--seconds", options.seconds, "to measure")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    run(options);
    // The slots are freed with the process.
    return EXIT_SUCCESS;
}
