// Text to token ids and back, and training of tokenizers.
#pragma once

#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"
