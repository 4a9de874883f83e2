// A server for test_gpunbd.py on a device whose memory the CPU cannot address, such as a GPU
// without a mapping. All data pass through the staged pipeline, which `host` does not use.
//   staged_server [-c COPIES] [-t FOLDER] PATH: serves on the Unix socket PATH until SIGTERM.
//   -c: one copy fails after COPIES successful ones. -t: requires TLS with the certificates in
//   FOLDER.
#include <signal.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "server/logging/log.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/listener.hpp"
#include "server/net/transport/tls_context.hpp"
#include "storage/devices/faulty/faulty_device.hpp"
#include "storage/devices/host/host_device.hpp"

namespace {

using namespace gpunbd;

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t gib = 1 << 30;
constexpr std::uint64_t page_size = 2 * mib;
constexpr std::size_t worker_count = 2;

// Copies are much shorter than most requests, few run at a time, and each takes several polls.
constexpr storage::ChannelOptions channels{.chunk_size = 64 << 10, .slots = 2, .pinned = 2 * mib};
constexpr std::uint32_t polls_per_copy = 3;

std::shared_ptr<server::Export> offer(storage::Device& one, storage::Device& other,
                                      const char* name, std::uint64_t size) {
    auto made = std::make_shared<server::Export>();
    auto volume = storage::Volume::create(
        {.size = size, .page_size = page_size, .stripe_size = page_size}, {&one, &other});
    made->volume = std::get<std::unique_ptr<storage::Volume>>(std::move(volume));
    made->activity =
        std::make_shared<server::ActivityMap>(made->volume->size(), made->volume->page_size());
    made->info = {.name = name, .size = size};
    return made;
}

}  // namespace

int main(int argc, char** argv) {
    storage::FaultScript script;
    script.polls_per_copy = polls_per_copy;
    config::Options options;
    for (int flag = 0; (flag = ::getopt(argc, argv, "c:t:")) != -1;) {
        if (flag == 'c') script.copies_until_failure = std::atoll(optarg);
        if (flag == 't') options.tls = {config::TlsMode::required, optarg, true, ""};
    }
    if (optind + 1 != argc) {
        std::fputs("usage: staged_server [-c COPIES] [-t FOLDER] PATH\n", stderr);
        return 2;
    }
    const auto tls = server::TlsContext::load(options);
    ::signal(SIGPIPE, SIG_IGN);
    const server::Log log({});
    const auto one = storage::make_faulty_device(
        storage::open_host_device(0, {.reserve = 0, .capacity = {}}), script);
    const auto other = storage::make_faulty_device(
        storage::open_host_device(1, {.reserve = 0, .capacity = {}}), script);

    server::ExportRegistry exports;
    const auto fixed = offer(*one, *other, "fixed", 64 * mib);
    fixed->info.read_only = true;
    const auto coarse = offer(*one, *other, "coarse", 64 * mib);
    coarse->info.minimum_block = 4096;
    exports.replace({offer(*one, *other, "disk", 64 * mib), offer(*one, *other, "large", 5 * gib),
                     fixed, coarse});

    boost::asio::io_context io;
    boost::asio::signal_set signals(io, SIGTERM);
    signals.async_wait([&](boost::system::error_code, int) { io.stop(); });
    std::vector<std::unique_ptr<server::Worker>> workers;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i != worker_count; ++i) {
        workers.push_back(std::make_unique<server::Worker>(channels, gib, false));
        threads.emplace_back([worker = workers.back().get()] { worker->run(); });
    }
    const server::SessionLimits limits;
    config::UnixListener where;
    where.path = argv[optind];
    const auto listener = server::Listener::unix_socket(io, where);
    std::size_t next = 0;
    listener->start([&](OwnedFd fd, server::Peer peer) {
        workers[next++ % worker_count]->serve(std::move(fd), std::move(peer), exports, limits,
                                              nullptr, tls);
    });
    io.run();
    listener->stop();
    for (const auto& worker : workers) worker->stop();
    for (std::thread& thread : threads) thread.join();
    return 0;
}
