// An origin is a file that provides the contents of a volume. Its pages are read when clients need
// them, stay in the memory of the volume's device as a cache, and are dropped when other programs
// need the memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/slab_copy.hpp"
#include "storage/images/image_file.hpp"
#include "storage/pages/page_pool.hpp"
#include "storage/pages/page_source.hpp"

namespace gpunbd::storage {

class Volume;

// A file that is open for reading, and which of its pages have contents.
class OriginFile {
 public:
    enum class Kind : std::uint8_t { file, block_device };
    // A text is the reason why the file cannot be an origin, for users.
    static std::variant<std::unique_ptr<OriginFile>, std::string> open(const std::string& path,
                                                                       Kind kind,
                                                                       std::uint64_t page_size);

    const std::string& path() const { return path_; }
    std::uint64_t size() const { return file_.size(); }  // bytes
    // Whether the page is not a hole of the file. Of the time when the file was opened.
    bool has(std::uint64_t page) const { return data_[page]; }
    // Exactly that many bytes. Returns an error, if there is one. Also an error: another program
    // has written to the file since it was opened. Any thread.
    std::optional<std::string> read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
    OriginFile(std::string path, std::uint64_t page_size);

    const std::string path_;
    const std::uint64_t page_size_;  // bytes
    ImageFile file_;
    std::vector<bool> data_;  // by page
};

// Fetches the absent pages of one volume from its origin, on threads of its own, and ahead of
// clients that read in sequence. If the volume's memory is in use, the page that was used least
// recently makes room, as a clock finds it.
class OriginCache final : public PageSource {
 public:
    enum class Ahead : std::uint8_t {
        nothing,
        sequences,  // what follows for clients that read in sequence
        all,        // besides, everything from the start, as far as the memory goes
    };
    struct Options {
        std::string export_name;  // for the log
        Ahead reads_ahead = Ahead::sequences;
    };
    // The volume outlives it. Throws std::system_error if there are no threads, and what
    // Device::open_channel() throws.
    OriginCache(Volume& volume, std::unique_ptr<const OriginFile> origin, Options options);
    // Waits for reads in progress.
    ~OriginCache() override;

    bool has(std::uint64_t page) const override { return origin_->has(page); }
    void fetch(PageRequest& request) noexcept override;
    void drop(std::uint64_t page) override;

    const std::string& name() const override { return origin_->path(); }
    const Counters& counters() const override { return counters_; }

 private:
    // A page that is to be fetched, or is being fetched.
    struct Fetch {
        PageRequests waiters = {};
        bool is_running = false;
        bool is_wanted = false;  // by a client
        bool is_ahead = false;   // no client wanted it at first
        bool fills = false;      // for Ahead::all, so no other page makes room
    };
    // A page of the pool, as the hand of the clock has left it.
    struct Cached {
        std::uint64_t number = 0;  // in the volume, if that is mapped to this page
        std::uint32_t uses = 0;    // PageStates::uses()
    };

    // Clients that read in sequence.
    struct Stream {
        std::uint64_t next = 0;    // the page after those that are read ahead
        std::uint64_t window = 0;  // how many pages were read ahead the last time
    };

    void stop();
    void run() noexcept;
    // The next page to be fetched; wanted ones first, and those of Ahead::all last.
    std::optional<std::uint64_t> next() REQUIRES(mutex_);
    // Fetches a page that next() returned. Releases the mutex meanwhile.
    void perform(std::uint64_t page, SlabCopier& copier) REQUIRES(mutex_);
    void follow(std::uint64_t page) noexcept REQUIRES(mutex_);
    // no_space: there is no memory for a page that no client waits for.
    Status load(std::uint64_t page, SlabCopier& copier) noexcept;
    Status take(std::uint64_t page, PageRef& out);
    // Whether no client waits for the page. Then no other page makes room for it.
    bool only_fills(std::uint64_t page);
    Status read(std::uint64_t page, const PageRef& to, SlabCopier& copier);
    // Before it is mapped, so that the clock finds each page in memory.
    void remember(PageIndex index, std::uint64_t page);
    // False: no page can be dropped.
    bool evict_one();
    void log_error(const std::string& why) noexcept EXCLUDES(mutex_);

    Volume& volume_;
    const std::unique_ptr<const OriginFile> origin_;
    const Options options_;
    std::uint64_t longest_ = 0;  // window, pages
    Counters counters_;          // written with the mutex held

    Mutex mutex_;
    Condition changed_;  // something is to be fetched, or is_stopping_
    bool is_stopping_ GUARDED_BY(mutex_) = false;
    bool has_failed_ GUARDED_BY(mutex_) = false;  // the last read of the origin
    std::unordered_map<std::uint64_t, Fetch> fetches_ GUARDED_BY(mutex_);
    std::deque<std::uint64_t> wanted_ GUARDED_BY(mutex_);
    std::deque<std::uint64_t> ahead_ GUARDED_BY(mutex_);
    std::array<Stream, 8> streams_ GUARDED_BY(mutex_);
    // The next page of Ahead::all, and its end.
    std::uint64_t next_of_all_ GUARDED_BY(mutex_) = 0;
    std::uint64_t end_of_all_ GUARDED_BY(mutex_) = 0;
    std::uint32_t next_stream_ GUARDED_BY(mutex_) = 0;  // the one that is replaced next
    std::vector<Cached> cached_ GUARDED_BY(mutex_);     // by PageIndex
    std::size_t hand_ GUARDED_BY(mutex_) = 0;           // the next one
    std::vector<std::thread> threads_;
};

}  // namespace gpunbd::storage
