#include "server/daemon/saves.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/daemon/export_factory.hpp"
#include "server/daemon/worker_pool.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/long_work.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/images/restore_image.hpp"

namespace gpunbd::server {

namespace {

constexpr auto check_interval = std::chrono::seconds(1);  // of the times of saving
constexpr int yielding = 10;                              // nice value: clients come first

std::string work_text(const Export& served) {
    return fmt::format("export {}", config::in_quotes(served.info.name));
}

// Whether clients that write meanwhile do not change what is saved, since a clone is saved. That
// takes memory for the pages that they write, which swap must not miss.
bool of_one_instant(const Export& served) {
    return served.options.provision == config::Provision::thin && !served.options.swap &&
           !served.volume->table_descriptor();
}

// Returns an error, if there is one. `on_progress` may be empty.
std::optional<std::string> write_file(const Export& served, const std::string& path,
                                      const storage::ImageFormat& format,
                                      const storage::ChannelOptions& channels,
                                      const std::stop_token& stop,
                                      const std::function<void()>& on_progress) {
    // The file may have the contents that are lacking.
    if (!served.volume->complete()) return "it is not restored completely";
    std::unique_ptr<storage::Volume> clone;
    if (of_one_instant(served)) {
        auto made = served.volume->clone(served.info.name);
        if (auto* const why = std::get_if<std::string>(&made)) return *why;
        clone = std::move(std::get<std::unique_ptr<storage::Volume>>(made));
    }
    storage::Volume& volume = clone ? *clone : *served.volume;
    storage::LongWork work("saving", work_text(served), served.volume->size(), "bytes");
    return storage::save_image(volume, channels, path, format, stop, [&](std::uint64_t done) {
        work.set_done(done);
        if (on_progress) on_progress();
    });
}

// The same, and logs the outcome.
std::optional<std::string> save_now(const Export& served, const std::string& path,
                                    const storage::ImageFormat& format,
                                    const storage::ChannelOptions& channels,
                                    const std::stop_token& stop,
                                    const std::function<void()>& on_progress = {}) {
    const auto began = std::chrono::steady_clock::now();
    std::optional<std::string> why = write_file(served, path, format, channels, stop, on_progress);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
    if (!why) {
        storage::LogLine(spdlog::level::info)
            .with("export", served.info.name)
            .with("file", path)
            .log("export {}: saved to {} in {:.1f} s", config::in_quotes(served.info.name), path,
                 taken.count());
    } else {
        storage::LogLine(spdlog::level::err)
            .with("export", served.info.name)
            .with("file", path)
            .log("export {}: it was not saved: {}", config::in_quotes(served.info.name), *why);
    }
    return why;
}

// Writes the contents of the file. Returns an error, if there is one.
std::optional<std::string> refill(const Export& served, const std::string& path,
                                  const storage::ChannelOptions& channels,
                                  const std::stop_token& stop,
                                  storage::LargerImage larger = storage::LargerImage::refused) {
    storage::LongWork work("restoring", work_text(served), served.volume->size(), "bytes");
    return storage::restore_image(
        path, *served.volume, channels, stop, [&](std::uint64_t done) { work.set_done(done); },
        larger);
}

// Fills an export that is closed to clients, and that is incomplete until it has all of the file.
// Returns an error, if there is one. After an error it is empty. If the stop of the server is the
// error, it stays incomplete, so that neither a save nor the next server takes it for complete.
std::optional<std::string> fill(const Export& served, const std::string& path,
                                const storage::ChannelOptions& channels,
                                const std::stop_token& stop) {
    storage::Volume& volume = *served.volume;
    if (volume.mapped_bytes() != 0) {
        return fmt::format("it is not empty: {} are in use; discard them, or create another export",
                           config::human_size(volume.mapped_bytes()));
    }
    if (auto why = volume.set_incomplete()) return why;
    std::optional<std::string> why = refill(served, path, channels, stop);
    if (why) {
        if (stop.stop_requested()) return why;
        for (std::uint64_t page = 0; page != volume.pages(); ++page) volume.unmap(page);
    }
    volume.set_complete();
    return why;
}

// Returns an error, if there is one. After an error the export is empty again.
std::optional<std::string> restore_now(const Export& served, const std::string& path,
                                       const storage::ChannelOptions& channels,
                                       const std::stop_token& stop) {
    const ExportUse::Closed closed = served.use->close("the export is being restored");
    if (!closed.closure) {
        return closed.why_not + (closed.connections != 0 ? "; disconnect all clients first" : "");
    }
    return fill(served, path, channels, stop);
}

// Fits into a string without an allocation.
constexpr const char* no_memory = "no memory";

// An exception of the work is its outcome.
template <typename Work>
Outcome outcome_of_work(const Work& work, const std::stop_token& stop) {
    try {
        return work(stop);
    } catch (const std::bad_alloc&) {
        storage::log_if_possible([] { spdlog::error("saving: {}", no_memory); });
        return NotDone{no_memory};
    } catch (const std::exception& error) {
        storage::log_if_possible([&] { spdlog::error("saving: {}", error.what()); });
        try {
            return NotDone{error.what()};
        } catch (const std::bad_alloc&) {
            return NotDone{no_memory};
        }
    }
}

}  // namespace

Saves::Saves(ServerContext& context)
    : context_(context), channels_(channel_options(context.options.pipeline)), timer_(context.io) {}

void Saves::start() {
    GPUNBD_ASSERT(!thread_.joinable(), "one thread saves and restores");
    const storage::SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    save_those_due();
}

void Saves::stop() {
    timer_.cancel();
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    {
        std::deque<Job> dropped;  // they hold exports
        const Lock lock(mutex_);
        dropped.swap(jobs_);
    }
    if (handed_over_) return;
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        const config::SaveOptions& save = each->options.save;
        if (!save.at_stop) continue;
        // The supervisor would end a server that does not report for long.
        auto reported = Clock::now();
        save_now(*each, save.path, {}, channels_, {}, [&] {
            if (Clock::now() - reported < check_interval) return;
            reported = Clock::now();
            context_.supervision.notify("WATCHDOG=1\nEXTEND_TIMEOUT_USEC=30000000");
        });
    }
}

Awaited<Outcome> Saves::save(const std::shared_ptr<const Export>& served, const std::string& path,
                             const storage::ImageFormat& format) {
    return submit([this, served, path, format](const std::stop_token& stop) -> Outcome {
        std::optional<std::string> why = save_now(*served, path, format, channels_, stop);
        if (why) return NotDone{*std::move(why)};
        return Done{fmt::format(
            "Export {} is saved to {}{}.", config::in_quotes(served->info.name), path,
            of_one_instant(*served) ? "" : "; writes in the meantime may be in it or not")};
    });
}

Awaited<Outcome> Saves::restore(const std::shared_ptr<const Export>& served,
                                const std::string& path) {
    return submit([this, served, path](const std::stop_token& stop) -> Outcome {
        const std::string name = config::in_quotes(served->info.name);
        const std::optional<std::string> why = restore_now(*served, path, channels_, stop);
        if (why) return NotDone{fmt::format("export {}: {}", name, *why)};
        return Done{fmt::format("Export {} has the contents of {}.", name, path)};
    });
}

Awaited<Outcome> Saves::restore_new(const std::shared_ptr<const Export>& made) {
    return submit([this, made](const std::stop_token& stop) -> Outcome {
        const std::string& path = made->options.restore;
        const std::optional<std::string> why =
            refill(*made, path, channels_, stop, larger_image_for(made->options));
        if (why) return NotDone{fmt::format("restore: {}", *why)};
        log_restored(made->options, *made->volume);
        return Done{};
    });
}

bool Saves::busy() const {
    const Lock lock(mutex_);
    return working_ || !jobs_.empty();
}

Awaited<Outcome> Saves::submit(Work work) {
    Awaited<Outcome> outcome(context_.io);
    if (context_.lifecycle.refuses_changes()) {
        outcome.giver()(context_.lifecycle.refusal());
        return outcome;
    }
    {
        const Lock lock(mutex_);
        jobs_.push_back({std::move(work), outcome.giver()});
    }
    submitted_.notify_one();
    return outcome;
}

// Returns nothing at the stop.
std::optional<Saves::Job> Saves::take_next(const std::stop_token& stop) {
    const Lock lock(mutex_);
    const auto is_due = [this]() REQUIRES(mutex_) { return !jobs_.empty(); };
    if (!submitted_.wait(mutex_, stop, is_due)) return std::nullopt;
    if (stop.stop_requested()) return std::nullopt;
    working_ = true;
    std::optional<Job> job(std::move(jobs_.front()));
    jobs_.pop_front();
    return job;
}

void Saves::run(const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "saves");
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), yielding);
    while (const std::optional<Job> job = take_next(stop)) {
        Outcome outcome = outcome_of_work(job->work, stop);
        {
            // Before the outcome is given: the next request may be an upgrade.
            const Lock lock(mutex_);
            GPUNBD_ASSERT(working_, "a job that ends has begun");
            working_ = false;
        }
        job->give(std::move(outcome));
    }
}

void Saves::save_those_due() {
    const Clock::time_point now = Clock::now();
    const auto exports = context_.exports.snapshot();
    const auto earlier = std::exchange(last_, {});
    for (const auto& each : *exports) {
        const config::SaveOptions& save = each->options.save;
        if (!save.every || !each->volume->complete()) continue;
        const auto found = earlier.find(each->use);
        Clock::time_point& last = last_[each->use];
        last = found == earlier.end() ? now : found->second;
        if (now - last < *save.every) continue;
        if (context_.lifecycle.refuses_changes()) continue;  // it stays due
        last = now;
        static_cast<void>(this->save(each, save.path, {}));  // which logs its outcome
    }
    timer_.expires_after(check_interval);
    timer_.async_wait([this](boost::system::error_code error) {
        if (!error) save_those_due();
    });
}

}  // namespace gpunbd::server
