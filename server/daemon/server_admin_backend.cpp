#include "server/daemon/server_admin_backend.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "config/quote.hpp"
#include "protocol/constants.hpp"
#include "server/admin/model/own_process.hpp"
#include "storage/base/long_work.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr auto& directions = CopyStatus::directions;  // as storage::Copy::Kind

double seconds_since_1970(std::chrono::system_clock::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
}

const char* way_name(std::size_t way) {
    return way == storage::ChannelCounters::in_place
               ? "in place"
               : storage::to_text(static_cast<storage::PathKind>(way));
}

std::string in_small_letters(std::string_view name) {
    std::string out(name);
    std::transform(out.begin(), out.end(), out.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return out;
}

std::string type_name(std::size_t type) {
    if (type + 1 == ExportCounters::types) return "unknown";
    return in_small_letters(protocol::name_of(static_cast<protocol::CommandType>(type)));
}

// Seconds; 0: the client reads its replies.
double stalled_for(const ConnectionCounters& counters) {
    const std::uint64_t since = counters.unsent_since.value();
    const std::uint64_t now = Stall::now();
    const std::chrono::duration<double> stalled =
        std::chrono::nanoseconds(since == 0 || now < since ? 0 : now - since);
    return stalled < Stall::least ? 0 : stalled.count();
}

RateStatus describe(const config::Rates& rates) {
    return {.bytes_per_second = rates.bytes_per_second,
            .iops = rates.iops,
            .burst = static_cast<double>(rates.burst.count())};
}

// The device that the pages in this spill memory have left; null: it is no spill memory.
const storage::Device* home_of(const storage::Volume& volume, std::uint32_t device) {
    if (device < volume.layout_devices() || !volume.has_spills()) return nullptr;
    return &volume.pool(volume.pool(device).memory().slabs().config().home).device();
}

std::vector<ExportMemory> memory_of(const storage::Volume& volume) {
    std::vector<ExportMemory> out;
    const auto memory = volume.memory();
    for (std::uint32_t i = 0; i != memory.size(); ++i) {
        const storage::Device* const home = home_of(volume, i);
        out.push_back({.device = memory[i].device->info().id,
                       .used = memory[i].mapped,
                       .allocated = memory[i].allocated,
                       .slabs = memory[i].slabs,
                       .home = home == nullptr ? "" : home->info().id});
    }
    return out;
}

LongestRequest no_longest_request() {
    LongestRequest none;
    for (const std::string_view stage : wait_stages) none.waits.push_back({std::string(stage)});
    return none;
}

std::vector<OriginRequests> describe(const storage::OriginTimes& times) {
    using Times = storage::OriginTimes;
    const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e9; };
    std::vector<OriginRequests> out;
    for (std::size_t i = 0; i != Times::names.size(); ++i) {
        const storage::Histogram& latency = times.of(static_cast<Times::Operation>(i));
        if (latency.count() == 0) continue;
        out.push_back({.operation = std::string(Times::names[i]),
                       .latency = latency,
                       .count = latency.count(),
                       .p50 = seconds(latency.quantile(0.5)),
                       .p99 = seconds(latency.quantile(0.99)),
                       .longest = seconds(latency.max())});
    }
    return out;
}

ExportStatus describe(const Export& served) {
    const config::ExportOptions& options = served.options;
    ExportStatus status;
    status.name = served.info.name;
    status.description = options.description;
    status.size = served.info.size;
    status.page_size = served.volume->page_size();
    status.layout = options.layout == config::LayoutKind::stripe ? "stripe" : "linear";
    status.provision = options.provision == config::Provision::full ? "full" : "thin";
    status.read_only = served.info.read_only;
    status.snapshot = options.is_snapshot();
    status.keep = served.contents_outlive_server();
    status.swap = options.swap;
    status.run_time = options.provenance.run_time;
    status.persistent = options.provenance.persistent;
    if (options.provenance.created > 0) {
        status.created = static_cast<std::uint64_t>(options.provenance.created);
    }
    status.clone_of = options.clone_of;
    status.instance = served.info.instance;
    status.connections = served.use->connections();
    status.rates = describe(options.rates);
    status.rates_per_peer = describe(options.rates_per_peer);
    const storage::Volume& volume = *served.volume;
    const storage::Volume::Contents contents = volume.contents();
    status.own = contents.own;
    status.shared = contents.shared;
    status.memory = memory_of(volume);
    if (const storage::PageCache* const cache = volume.cache(); cache != nullptr) {
        const storage::PageCache::Counters& counters = cache->counters();
        const storage::PageCache::Unwritten unwritten = cache->unwritten();
        status.origins.push_back({.path = cache->name(),
                                  .misses = counters.misses.value(),
                                  .fetched = counters.fetched.value(),
                                  .prefetched = counters.prefetched.value(),
                                  .wasted = counters.wasted.value(),
                                  .evicted = counters.evicted.value(),
                                  .errors = counters.errors.value(),
                                  .written = counters.written.value(),
                                  .unwritten = unwritten.bytes,
                                  .unwritten_age = unwritten.age,
                                  .read_bytes = counters.read_bytes.value(),
                                  .requests = describe(cache->times())});
    }
    status.last_second.longest = status.longest = no_longest_request();
    return status;
}

ContentsStatus describe(const storage::Volume& volume) {
    ContentsStatus status;
    status.name = volume.name();
    status.size = volume.size();
    const storage::Volume::Contents contents = volume.contents();
    status.own = contents.own;
    status.shared = contents.shared;
    status.memory = memory_of(volume);
    status.state = ContentsStatus::in_use;
    return status;
}

void describe(const storage::Device& device, DeviceStatus& status) {
    const storage::DeviceInfo& info = device.info();
    const storage::DeviceUse use = device.use(status.allocated);
    status.id = info.id;
    status.name = info.name;
    status.failed = device.failed();
    status.total = info.size();
    status.available = device.available();
    status.reserve = info.reserve;
    status.mapped = use.mapped;
    status.others_compute = use.others_compute;
    status.competition_noticed = use.competition_noticed;
    status.revocable = use.revocable;
    status.yielded = use.yielded;
    status.evictions = use.evictions;
}

// Takes the longer one of two requests.
void take_longer(LongestRequest& status, const LongRequest& other) {
    const auto seconds = [](std::uint32_t us) { return static_cast<double>(us) / 1e6; };
    if (seconds(other.duration) <= status.seconds) return;
    status.type = type_name(other.type);
    status.seconds = seconds(other.duration);
    status.age = other.age;
    for (std::size_t i = 0; i != wait_stages.size(); ++i) {
        status.waits[i].seconds = seconds(other.waits[i]);
    }
}

// The exports of a status, which stay where they are, by name.
using StatusByName = std::unordered_map<std::string_view, ExportStatus*>;

StatusByName by_name(std::vector<ExportStatus>& exports) {
    StatusByName index;
    index.reserve(exports.size());
    for (ExportStatus& each : exports) index.emplace(each.name, &each);
    return index;
}

// Adds the counters of a worker to the exports of the same name.
void count_requests(const StatusByName& exports, const WorkerCounters& counters) {
    const auto now = LongestRequests::Clock::now();
    for (const auto& [name_of_export, counted] : counters.exports()) {
        const auto place_of_export = exports.find(*name_of_export);
        if (place_of_export == exports.end()) continue;
        ExportStatus* const found = place_of_export->second;
        add(*found, *counted);
        take_longer(found->last_second.longest, counted->longest.longest(now, 1, 1));
        take_longer(found->longest, counted->longest.longest(now, 0, LongestRequests::seconds - 1));
        for (std::size_t type = 0; type != ExportCounters::types; ++type) {
            const RequestCounters& of_type = counted->by_type[type];
            const std::uint64_t in_flight = of_type.in_flight.value();
            // Of a READ without an answer, parts may have been sent.
            if (in_flight + of_type.requests.value() + of_type.bytes.value() == 0) continue;
            const std::string name = type_name(type);
            auto place = std::find_if(found->requests.begin(), found->requests.end(),
                                      [&](const auto& each) { return each.type == name; });
            if (place == found->requests.end()) {
                place = found->requests.emplace(place);
                place->type = name;
            }
            add(*place, of_type);
            place->in_flight += in_flight;
        }
    }
}

void count_copies(DeviceStatus& status, const storage::Channel& channel) {
    for (const storage::StagingArena* arena : {&channel.read_staging(), &channel.write_staging()}) {
        status.staging += arena->largest();
        status.staging_used += arena->largest() - arena->free_bytes();
        status.staging_waits += arena->waits();
    }
    const storage::ChannelCounters& counters = channel.counters();
    status.failures += counters.failures.value();
    for (std::size_t way = 0; way != storage::ChannelCounters::paths; ++way) {
        for (std::size_t direction = 0; direction != directions.size(); ++direction) {
            const auto& moved = counters.by_path[way][direction];
            if (moved.copies.value() == 0) continue;
            auto& copies = status.copies;
            auto place = std::find_if(copies.begin(), copies.end(), [&](const auto& each) {
                return each.path == way_name(way) && each.direction == directions[direction];
            });
            if (place == copies.end()) {
                place = copies.insert(place,
                                      CopyStatus{.path = way_name(way),
                                                 .direction = std::string(directions[direction])});
            }
            place->copies += moved.copies.value();
            place->bytes += moved.bytes.value();
        }
    }
}

}  // namespace

ServerAdminBackend::ServerAdminBackend(asio::io_context& io, const ExportRegistry& exports,
                                       const AcceptCounters& counters, Actions& actions)
    : exports_(exports), counters_(counters), actions_(actions), calls_(io) {}

void ServerAdminBackend::serves(Workers workers) {
    const Lock lock(mutex_);
    workers_ = std::move(workers);
    state_ = State::serving;
}

ServerAdminBackend::Workers ServerAdminBackend::workers() const {
    const Lock lock(mutex_);
    return workers_;
}

std::shared_ptr<const Export> ServerAdminBackend::find(std::string_view name) const {
    return exports_.find(name);
}

void ServerAdminBackend::add_exports(Status& status, const Workers& workers) const {
    const auto exports = exports_.snapshot();
    std::map<std::uint32_t, const storage::Device*> devices;
    std::map<std::uint32_t, DeviceStatus> by_number;
    Volumes volumes;
    std::unordered_map<std::string_view, std::uint64_t> clones_of;  // templates, by name
    for (const auto& each : *exports) {
        status.exports.push_back(describe(*each));
        volumes.push_back(each->volume);
        if (const std::string& its_template = each->options.provenance.made_by;
            !its_template.empty()) {
            ++clones_of[its_template];
        }
    }
    add_contents(status, volumes);
    std::set<const storage::PagePool*> counted;  // volumes that share pages have the same pools
    for (const auto& each : volumes) {
        const storage::Volume& volume = *each;
        const std::uint32_t pools = volume.pools();
        for (std::uint32_t i = 0; i != pools; ++i) {
            const storage::PagePool& pool = volume.pool(i);
            if (!counted.insert(&pool).second) continue;
            const std::uint64_t mapped = pool.memory().pages().mapped_pages() * volume.page_size();
            if (const storage::Device* const home = home_of(volume, i)) {
                by_number[home->number()].spilled += mapped;
            }
            devices[pool.device().number()] = &pool.device();
            DeviceStatus& device = by_number[pool.device().number()];
            device.used += mapped;
            const storage::PageAllocator::Usage usage = pool.memory().usage();
            device.allocated += usage.allocated;
            device.slabs += usage.slabs;
        }
    }
    const StatusByName exports_by_name = by_name(status.exports);
    const auto templates = exports_.templates();
    for (const auto& each : *templates) {
        const auto base = exports_by_name.find(each->options.clone_per_client.of);
        if (base == exports_by_name.end()) continue;
        const auto clones = clones_of.find(each->options.name);
        base->second->templates.push_back({.name = each->options.name,
                                           .clones = clones == clones_of.end() ? 0 : clones->second,
                                           .max = each->options.clone_per_client.max});
    }
    for (Worker* const worker : workers) {
        count_requests(exports_by_name, worker->counters());
        for (const auto& [device, channel] : worker->channels().snapshot()) {
            const auto found = by_number.find(device->number());
            if (found != by_number.end()) count_copies(found->second, *channel);
        }
    }
    for (auto& [number, device] : by_number) {
        describe(*devices[number], device);
        actions_.add_reclaim(device);
        status.devices.push_back(std::move(device));
    }
}

void ServerAdminBackend::add_contents(Status& status, Volumes& volumes) const {
    std::set<std::shared_ptr<storage::Volume>> known(volumes.begin(), volumes.end());
    const auto unused = actions_.unused_contents();
    const auto now = KeptContents::Clock::now();
    const auto add_state = [now](ContentsStatus& its, const KeptContents::Unused& contents) {
        its.state = contents.state;
        if (!contents.ends) return;
        its.freed_in = std::max(0.0, std::chrono::duration<double>(*contents.ends - now).count());
    };
    for (const auto& each : unused) {
        if (each.volume.lock()) continue;
        ContentsStatus& its = status.contents.emplace_back();
        its.name = each.name;
        its.size = each.size;
        add_state(its, each);
    }
    for (auto& each : actions_.volumes()) {
        if (!known.insert(each).second) continue;
        ContentsStatus& its = status.contents.emplace_back(describe(*each));
        const auto found = std::ranges::find_if(
            unused, [&](const auto& contents) { return contents.volume.lock() == each; });
        if (found != unused.end()) add_state(its, *found);
        volumes.push_back(std::move(each));
    }
}

void ServerAdminBackend::add_connections(Status& status, const Workers& workers) const {
    for (Worker* const worker : workers) {
        const WorkerCounters& counters = worker->counters();
        add(status, counters);
        const auto connections = counters.connections();
        const auto now = ConnectionFacts::Clock::now();
        for (const auto& [counted, facts] : connections) {
            ConnectionStatus& connection = status.connections.emplace_back();
            connection.id = counted->id;
            connection.peer = facts->peer;
            connection.listener = facts->listener;
            connection.export_name = facts->export_name;
            connection.serving = facts->serving;
            connection.read_only = facts->read_only;
            connection.age = std::chrono::duration<double>(now - facts->since).count();
            connection.tls = facts->tls;
            connection.identity = facts->identity;
            connection.stalled = stalled_for(*counted);
            add(connection, *counted);
        }
    }
    const StatusByName exports = by_name(status.exports);
    for (const ConnectionStatus& each : status.connections) {
        if (each.stalled == 0 || !each.serving) continue;
        const auto found = exports.find(each.export_name);
        if (found != exports.end()) ++found->second->stalled;
    }
}

Status ServerAdminBackend::status() {
    Status status;
    const Workers workers = this->workers();
    status.time = seconds_since_1970(std::chrono::system_clock::now());
    status.process = describe_own_process();
    status.process.started = seconds_since_1970(started_);
    status.process.uptime =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - up_since_).count();
    status.process.workers = static_cast<std::uint32_t>(workers.size());
    status.process.state = ProcessStatus::states[static_cast<std::size_t>(state_.load())];
    for (const auto& work : storage::LongWork::in_progress()) {
        status.progress.push_back({.what = work.what,
                                   .of = work.of,
                                   .done = work.done,
                                   .total = work.total,
                                   .unit = work.unit});
    }
    status.accepted = counters_.accepted.value();
    for (std::size_t i = 0; i != connection_limits.size(); ++i) {
        status.refused[connection_limits[i]] = counters_.refused[i].value();
    }
    for (const Validity& each : actions_.validities()) {
        status.certificates.push_back(
            {.file = each.path,
             .expires = static_cast<std::uint64_t>(std::max<std::time_t>(each.until, 0))});
    }
    add_exports(status, workers);
    add_connections(status, workers);
    return status;
}

// --- the map of an export ------------------------------------------------------------------------

namespace {

// Clips the range to the export and extends it to whole pages.
storage::Range pages_within(const storage::Volume& volume, std::uint64_t size, std::uint64_t offset,
                            std::uint64_t length) {
    if (offset >= size) return {size, 0};
    const std::uint64_t begin = offset & ~(volume.page_size() - 1);
    const std::uint64_t end = begin + std::min(length, size - begin);
    const std::uint64_t rest = volume.offset_in_page(end);
    return {begin, std::min(size, rest == 0 ? end : end - rest + volume.page_size()) - begin};
}

std::uint64_t seconds_of_clock() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace

std::optional<ExportMap> ServerAdminBackend::map(std::string_view name, std::uint64_t offset,
                                                 std::uint64_t length, std::uint32_t max_cells) {
    const auto served = find(name);
    if (!served) return std::nullopt;
    const storage::Volume& volume = *served->volume;
    // While a resize is in progress, the volume may have more pages than the activity of its
    // export.
    const std::uint64_t size = std::min(volume.size(), served->info.size);
    const storage::Range range = pages_within(volume, size, offset, length);
    ExportMap map{.size = size,
                  .page_size = volume.page_size(),
                  .offset = range.offset,
                  .length = range.length,
                  .cell = volume.page_size()};
    while ((range.length + map.cell - 1) / map.cell > std::max(1U, max_cells)) map.cell *= 2;
    served->activity->watch(seconds_of_clock());
    std::uint64_t at = range.offset;
    for (std::uint64_t left = range.length; left != 0;) {
        const std::uint64_t cell = std::min(left, map.cell);
        std::uint64_t mapped = 0;
        for (std::uint64_t done = 0; done != cell;) {
            const storage::Volume::Run run = volume.run_at(at + done, cell - done);
            if (run.device != 0) mapped += run.length;
            done += run.length;
        }
        map.used.push_back(static_cast<std::uint8_t>((mapped * 100 + cell - 1) / cell));
        map.read.push_back(served->activity->was_read(at, cell) ? 1 : 0);
        map.written.push_back(served->activity->was_written(at, cell) ? 1 : 0);
        at += cell;
        left -= cell;
    }
    return map;
}

std::optional<PageRuns> ServerAdminBackend::pages(std::string_view name, std::uint64_t offset,
                                                  std::uint64_t length, std::size_t max_runs) {
    const auto served = find(name);
    if (!served) return std::nullopt;
    const storage::Volume& volume = *served->volume;
    storage::Range range = pages_within(volume, volume.size(), offset, length);
    PageRuns out{.page_size = volume.page_size()};
    while (range.length != 0) {
        if (out.runs.size() == max_runs) {
            out.next = range.offset;
            break;
        }
        const storage::Volume::Run run = volume.run_at(range.offset, range.length);
        out.runs.push_back(
            {.offset = range.offset,
             .length = run.length,
             .device = run.device == 0 ? "" : volume.pool(run.device - 1).device().info().id});
        range.offset += run.length;
        range.length -= run.length;
    }
    return out;
}

// --- changes -------------------------------------------------------------------------------------

Outcome ServerAdminBackend::set_log_level(std::string_view level) {
    spdlog::default_logger_raw()->set_level(spdlog::level::from_str(std::string(level)));
    return Done{fmt::format("The log level is {} now.", level)};
}

void ServerAdminBackend::end_connection(std::uint64_t id, Completion completion) {
    for (Worker* const worker : workers()) {
        for (const auto& [counted, facts] : worker->counters().connections()) {
            if (counted->id != id) continue;
            spdlog::warn("{}: its connection is closed at the request of an administrator",
                         facts->peer);
            return worker->end_connection(
                id, [completion, done = fmt::format("The connection of {} is closed.",
                                                    facts->peer)] { completion(Done{done}); });
        }
    }
    completion(
        NotDone{.why = fmt::format("there is no connection {}; /api/v1/connections lists them", id),
                .unknown = true});
}

void ServerAdminBackend::perform(const ExportRequest& request, Completion completion) {
    calls_.post([this, request, completion = std::move(completion)] {
        actions_.perform(request, completion);
    });
}

void ServerAdminBackend::list_kept(Completion completion) {
    ask_about_kept({.drop = {}, .completion = std::move(completion)});
}

void ServerAdminBackend::drop_kept(std::string_view name, Completion completion) {
    ask_about_kept({.drop = std::string(name), .completion = std::move(completion)});
}

void ServerAdminBackend::ask_about_kept(KeptQuery query) {
    calls_.post([this, query = std::move(query)] { actions_.answer_about_kept(query); });
}

void ServerAdminBackend::reclaim(const ReclaimRequest& request, Completion completion) {
    calls_.post([this, request, completion = std::move(completion)] {
        actions_.reclaim(request, completion);
    });
}

void ServerAdminBackend::end_reclaim(const EndOfReclaim& request, Completion completion) {
    calls_.post([this, request, completion = std::move(completion)] {
        actions_.end_reclaim(request, completion);
    });
}

}  // namespace gpunbd::server
