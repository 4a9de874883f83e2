// A backend that returns values set by a test, records calls, and can keep a change pending.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "server/admin/model/admin_backend.hpp"

namespace gpunbd::server::admin::test {

inline Status some_status() {
    Status status;
    status.time = 1000;
    status.process.state = "serving";
    ExportStatus& exported = status.exports.emplace_back();
    exported.name = "<script>";
    exported.size = 1 << 30;
    exported.page_size = 2 << 20;
    exported.memory = {{"host", 10, 20, 1}, {"cuda:0", 1, 2, 3}};
    exported.requests.resize(1);
    exported.requests[0].type = "read";
    exported.requests[0].requests = 3;
    exported.requests[0].latency.record(std::chrono::microseconds(100));
    status.devices.emplace_back().id = "host";
    ConnectionStatus& connection = status.connections.emplace_back();
    connection.id = 7;
    connection.peer = "un\xffix";
    return status;
}

class FakeServer final : public AdminBackend {
 public:
    // Its process id is the number of the call.
    Status status() override {
        const std::lock_guard lock(mutex);
        current.process.pid = ++status_calls_;
        return current;
    }
    std::optional<ExportMap> map(std::string_view name, std::uint64_t offset, std::uint64_t length,
                                 std::uint32_t max_cells) override {
        if (name != "<script>") return std::nullopt;
        note("map " + std::to_string(offset) + " " + std::to_string(length) + " " +
             std::to_string(max_cells));
        return ExportMap{.size = 8,
                         .page_size = 1,
                         .offset = 0,
                         .length = 6,
                         .cell = 2,
                         .used = {100, 100, 7},
                         .read = {},
                         .written = {0, 1, 1}};
    }
    std::optional<PageRuns> pages(std::string_view name, std::uint64_t, std::uint64_t,
                                  std::size_t) override {
        if (name != "<script>") return std::nullopt;
        return PageRuns{.page_size = 1, .runs = {{0, 4, "host"}, {4, 4, ""}}, .next = 8};
    }
    void end_connection(std::uint64_t id, Completion completion) override {
        note("end " + std::to_string(id));
        if (id == 7) return completion(Done{"ended"});
        completion(NotDone{.why = "there is no such connection", .unknown = true});
    }
    Outcome set_log_level(std::string_view level) override {
        note("level " + std::string(level));
        return Done{"level set"};
    }
    void perform(const ExportRequest& request, Completion completion) override {
        if (const auto* const limits = std::get_if<SetRates>(&request)) {
            const config::Rates& rates = limits->rates;
            note("rates " + limits->name + " " +
                 std::to_string(rates.bytes_per_second.value_or(0)) + " " +
                 std::to_string(rates.iops.value_or(0)) + " " +
                 std::to_string(rates.burst.count()));
            return completion(Done{"slow"});
        }
        if (const auto* const access = std::get_if<SetReadOnly>(&request)) {
            if (access->name != "slow") return completion(NotDone{.why = "it is so already"});
            const std::lock_guard lock(mutex);
            return pending.push_back(std::move(completion));
        }
        if (const auto* const create = std::get_if<CreateExport>(&request)) {
            const config::ExportOptions& options = create->options;
            note("create " + options.name + " " +
                 (options.size ? std::to_string(options.size->bytes) : "of " + options.clone_of) +
                 (options.read_only ? " read-only" : "") + (create->persist ? " persist" : ""));
            return completion(Done{"created"});
        }
        if (const auto* const resize = std::get_if<ResizeExport>(&request)) {
            note("resize " + resize->name + " " + std::to_string(resize->size) +
                 (resize->discard ? " discard" : "") + (resize->reconnect ? " reconnect" : ""));
            return completion(Done{"resized"});
        }
        if (const auto* const flush = std::get_if<FlushExport>(&request)) {
            note("flush " + flush->name);
            return completion(Done{"flushed"});
        }
        if (const auto* const evict = std::get_if<EvictExport>(&request)) {
            note("evict " + evict->name + " " + std::to_string(evict->size));
            return completion(Done{"evicted"});
        }
        if (const auto* const rename = std::get_if<RenameExport>(&request)) {
            note("rename " + rename->name + " " + rename->new_name);
            return completion(Done{"renamed"});
        }
        if (const auto* const save = std::get_if<SaveExport>(&request)) {
            note("save " + save->name + " " + save->file + (save->zstd ? " zstd " : " raw ") +
                 std::to_string(save->threads));
            return completion(Done{"saved"});
        }
        if (const auto* const restore = std::get_if<RestoreExport>(&request)) {
            note("restore " + restore->file + " " + restore->create.options.name +
                 (restore->only_name ? "" : " new"));
            return completion(Done{"restored"});
        }
        const auto& remove = std::get<RemoveExport>(request);
        note("remove " + remove.name + (remove.force ? " force" : "") +
             (remove.keep_contents ? " keep" : ""));
        if (remove.name == "slow") {
            const std::lock_guard lock(mutex);
            pending.push_back(std::move(completion));
            return;
        }
        if (remove.name == "old") return completion(Done{"removed"});
        completion(NotDone{.why = "there is no such export", .unknown = true});
    }

    void list_kept(Completion completion) override {
        KeptStatus known;
        known.name = "<script>";
        known.size = 64;
        known.used = 8;
        known.devices = "host";
        known.made = 1000;
        known.instance = "abc";
        known.state = "in use";
        KeptStatus unknown;
        unknown.name = "un\xffknown";
        unknown.state = "its checksum is wrong";
        completion(Kept{{known, unknown}});
    }
    void drop_kept(std::string_view name, Completion completion) override {
        note("drop " + std::string(name));
        if (name == "old") return completion(Done{"dropped"});
        completion(NotDone{.why = "nothing is kept under that name", .unknown = true});
    }

    void reclaim(const ReclaimRequest& request, Completion completion) override {
        note("reclaim " + request.device + " " + std::to_string(request.bytes.value_or(0)) + " " +
             std::to_string(request.duration.value_or(std::chrono::seconds(0)).count()) +
             request.owner);
        completion(Reclaimed{{{.device = "cuda:0",
                               .wanted = 64,
                               .released = 48,
                               .freed = 8,
                               .dropped = 4,
                               .moved = {{"host", 40}},
                               .seconds = 0.5,
                               .why_not = "full",
                               .claim = 3,
                               .limit = 16}}});
    }
    void end_reclaim(const EndOfReclaim& request, Completion completion) override {
        note("end reclaim " + request.device + " " + std::to_string(request.claim.value_or(0)));
        if (request.device == "host")
            return completion(NotDone{.why = "no spill", .unknown = true});
        completion(Reclaimed{});
    }

    std::mutex mutex;
    std::vector<Completion> pending;  // changes of the export "slow"
    Status current = some_status();

    std::vector<std::string> calls() {
        const std::lock_guard lock(mutex);
        return calls_;
    }

 private:
    void note(std::string call) {
        const std::lock_guard lock(mutex);
        calls_.push_back(std::move(call));
    }

    std::vector<std::string> calls_;
    std::uint64_t status_calls_ = 0;
};

}  // namespace gpunbd::server::admin::test
