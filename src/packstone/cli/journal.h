// What a long quantize has done so far, on disk beside its destination, so that a run that was
// stopped goes on where it was.
#pragma once

#include <filesystem>
#include <optional>

#include "packstone/cli/conversion.h"

namespace packstone::cli {

// A folder `DST.journal`: call.json says what the run was asked for, and of which source; N.weight
// is the finished weight of tensor N of the source. A file is whole or absent: it is written under
// another name, flushed and renamed, and ends in the SHA-256 of all that stands before.
class Journal {
 public:
  // open(destination, call, resume, force, context): with `resume` goes on with the journal that is
  // there, or says that there is none; without, begins anew. The work of a run that stopped is
  // thrown away with `force` only.
  // Errors: kInvalidInput when the journal is of another call or source (resume), when one is there
  //         (neither resume nor force), or something else stands in its place; kIo, kExhausted.
  static Result<Journal> open(const std::filesystem::path& destination, const Json& call,
                              bool resume, bool force, Context& context);

  // The weight of a tensor that an earlier run finished, with its report; nothing when it did not,
  // or the file is damaged. The bytes stay in the file.
  std::optional<PackedWeight> find(std::size_t index, TensorPlan& tensor) const;
  // add(index, tensor) keeps tensor.made, and lets it lie in the file from then on.
  // Errors: kIo, kExhausted; the journal stays valid.
  Status add(std::size_t index, TensorPlan& tensor) const;
  // Removes the folder; for a run that has come to its end.
  void remove() const;
  const std::filesystem::path& path() const { return folder_; }

 private:
  explicit Journal(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path file(std::size_t index) const;
  std::filesystem::path folder_;
};

}  // namespace packstone::cli
